#!/usr/bin/env python3
"""train.noise_scale_every_steps: the norms, and what a run says of its gradient noise scale. Exits 77 without safetensors.

    noise_scale_test.py [unittest options]        SLUICE_BINARY names the binary

tr(Sigma) and |G|^2 of a step are computed by PyTorch in float64 from the same weights and samples, each replica's or
chunk's gradient by itself.
"""

import json
import pathlib
import tempfile
import unittest

import numpy as np
import torch
from torch.nn import functional as F

import compare_with_torch as step_test
import long_tests
import sluice_cli as cli
import torch_models
from safetensors.torch import load_file, save_file

IMAGE, CLASSES, SAMPLES = 16, 10, 13
KEYS = ("noise_trace", "noise_squared_norm", "noise_scale", "noise_scale_error")


def gradient(twin, inputs, targets):
    """Of the mean loss over the targets that count, as one vector."""
    twin.zero_grad()
    scores = twin(inputs).flatten(0, -2)
    count = (targets != step_test.NO_TARGET).sum()
    (F.cross_entropy(scores, targets.flatten(), reduction="sum") / count).backward()
    return torch.cat([parameter.grad.flatten() for parameter in twin.parameters()]).clone()


def parts_of(twin, batch, pieces):
    """For each piece its samples, its targets that count, its mean gradient."""
    return [(len(x), (y != step_test.NO_TARGET).sum().item(), gradient(twin, x, y))
            for x, y in zip(batch["inputs"].tensor_split(pieces), batch["targets"].tensor_split(pieces))]


def of_replicas(twin, batch, replicas):
    """By the deviations of the replicas' gradients from their mean, weighed by targets."""
    parts = parts_of(twin, batch, replicas)
    total = sum(targets for _, targets, _ in parts)
    weights = [targets / total for _, targets, _ in parts]
    mean = sum(weight * part for weight, (_, _, part) in zip(weights, parts))
    deviations = sum(weight * (part - mean).square().sum() for weight, (_, _, part) in zip(weights, parts))
    trace = deviations / sum(weight * (1 - weight) / n for weight, (n, _, _) in zip(weights, parts))
    return trace.item(), (mean.square().sum() - trace * sum(w * w / n for w, (n, _, _) in zip(weights, parts))).item()


def of_first_chunk(twin, batch, chunks):
    n, _, first = parts_of(twin, batch, chunks)[0]
    mean, total = gradient(twin, batch["inputs"], batch["targets"]), len(batch["targets"])
    small, big = first.square().sum().item(), mean.square().sum().item()
    return (small - big) / (1 / n - 1 / total), (total * big - n * small) / (total - n)


class NoiseScaleTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        torch.manual_seed(5)

    def configuration(self, name="run", **changes):
        tables = {"device": {"list": "cpu", "threads": 1}, "model": {"name": "mlp", "image_size": IMAGE},
                  "data": {"name": "shapes", "samples": 240},
                  "train": {"steps": 40, "global_batch": 16, "lr": 0.02, "noise_scale_every_steps": 1}, "pipeline": {},
                  "replicas": {"local": 2}, "checkpoint": {}, "freeze": {}}
        for table, values in changes.items():
            tables[table] = {**tables[table], **values}
        return cli.write_config(self.folder / f"{name}.toml", **tables)

    def train(self, config, name, *words):
        done = cli.must_run("train", config, "--run-dir", self.folder / name, *words)
        return self.folder / name, done

    def assert_estimate(self, found, expected, tolerance):
        for ours, theirs in zip(found, expected):
            self.assertAlmostEqual(ours, theirs, delta=tolerance * max(map(abs, expected)))

    def step(self, model, batch, twin, stages=1, replicas=1, chunks=1, schedule="1f1b"):
        """The estimates of one step of `sluice step` in float64."""
        save_file({key: value.clone() for key, value in twin.state_dict().items()}, self.folder / "weights.safetensors")
        save_file(batch, self.folder / "batch.safetensors")
        sizes = {} if model == "gpt2" else {"classes": CLASSES, "image_size": IMAGE, "channels": 3}
        config = cli.write_config(
            self.folder / "step.toml", device={"list": "cpu"}, model={"name": model, "size": "nano"} | sizes,
            data={"name": "toy" if model == "gpt2" else "shapes", "samples": 64},
            train={"precision": "fp64", "global_batch": 16, "steps": 1, "noise_scale_every_steps": 1},
            pipeline={"stages": stages, "chunks": chunks, "schedule": schedule}, replicas={"local": replicas})
        cli.must_run("step", config, "--weights", self.folder / "weights.safetensors",
                     "--batch", self.folder / "batch.safetensors", "--out", self.folder / "out.safetensors")
        out = load_file(self.folder / "out.safetensors")
        return [out["noise_trace"].item(), out["noise_squared_norm"].item()]

    def test_a_step_has_pytorchs_trace_and_norm(self):
        cases = (("mlp", 1, 1, 4, "1f1b"), ("gpt2", 1, 3, 1, "1f1b"), ("vit", 2, 3, 2, "zb-h1"), ("mlp", 1, 2, 1, "1f1b"),
                 ("toy_cnn", 2, 2, 2, "gpipe"), ("toy_cnn", 2, 1, 4, "1f1b"))
        for model, *grid in long_tests.some(cases[:3], cases, "other models and grids"):
            with self.subTest(model=model, grid=grid):
                _, replicas, chunks, _ = grid
                twin, batch = step_test.make_twin(model), step_test.make_batch(model)
                found = self.step(model, batch, twin, *grid)
                if model == "gpt2":  # each of the tied copies counts: here the head has a matrix of its own
                    untied = torch_models.Gpt2("nano", tied=False)
                    untied.load_state_dict(twin.state_dict())
                    twin = untied
                step_test.to_double(twin, batch)
                expected = of_replicas(twin, batch, replicas) if replicas > 1 else of_first_chunk(twin, batch, chunks)
                self.assert_estimate(found, expected, 1e-9)

    def test_equal_replicas_have_adaptdls_estimates(self):
        """var and sqr of its GradientNoiseScale, of n replicas at `scale` times the first batch B0: var is tr(Sigma) / B0."""
        twin, n, base = step_test.make_twin("mlp"), 4, 3
        batch = {name: tensor[:12] for name, tensor in step_test.make_batch("mlp").items()}
        trace, norm = self.step("mlp", batch, twin, replicas=n)
        step_test.to_double(twin, batch)
        locals_ = [part for _, _, part in parts_of(twin, batch, n)]
        of_local = sum(part.square().sum() for part in locals_).item() / n
        of_mean = (sum(locals_) / n).square().sum().item()
        sqr = (n * of_mean - of_local) / (n - 1)
        var = (of_local - of_mean) * (12 / base) / (n - 1)
        self.assert_estimate([trace, norm], [var * base, sqr], 1e-9)

    def own_images(self):
        """36 of the test's own samples, normalised as "npy" does, and weights; the twin in float64."""
        random = np.random.default_rng(7)
        images, labels = random.integers(0, 256, (36, IMAGE, IMAGE, 3), np.uint8), np.arange(36) % CLASSES
        for split in ("train", "test"):
            np.save(self.folder / f"{split}_images.npy", images)
            np.save(self.folder / f"{split}_labels.npy", labels)
        twin = torch_models.Mlp(pixels=3 * IMAGE * IMAGE)
        save_file(twin.state_dict(), self.folder / "weights.safetensors")
        inputs = torch.from_numpy(images).double().permute(0, 3, 1, 2) / 255
        inputs = (inputs - inputs.mean((0, 2, 3), keepdim=True)) / inputs.std((0, 2, 3), keepdim=True, correction=0)
        return twin.double(), {"inputs": inputs, "targets": torch.from_numpy(labels).long()}

    def test_two_processes_of_two_replicas_have_pytorchs_trace_and_norm(self):
        twin, samples = self.own_images()
        config = self.configuration(
            data={"name": "npy", "path": str(self.folder)}, model={"weights": str(self.folder / "weights.safetensors")},
            train={"steps": 1, "global_batch": 27, "precision": "fp64"})
        cli.must_run("step", config, "--out", self.folder / "out.safetensors")  # which samples come first, by their logits
        logits = load_file(self.folder / "out.safetensors")["logits"].double()
        distance = torch.cdist(logits, twin(samples["inputs"]).detach())
        order = distance.argmin(1)
        self.assertLess(distance.min(1).values.max(), 1e-4)
        self.assertEqual(len(set(order.tolist())), 27)
        batch = {name: tensor[order] for name, tensor in samples.items()}
        cli.must_run_ranks(2, "train", config, "--run-dir", self.folder / "two")
        [step] = cli.events(self.folder / "two", "step")
        self.assertEqual(step["replicas"], 4)
        self.assert_estimate([step["noise_trace"], step["noise_squared_norm"]], of_replicas(twin, batch, 4), 1e-5)
        chunks = self.configuration("chunks", data={"name": "npy", "path": str(self.folder)},
                                    model={"weights": str(self.folder / "weights.safetensors")}, replicas={"local": 1},
                                    train={"steps": 1, "global_batch": 27, "precision": "fp64"}, pipeline={"chunks": 4})
        run, _ = self.train(chunks, "chunks")
        [step] = cli.events(run, "step")
        self.assert_estimate([step["noise_trace"], step["noise_squared_norm"]], of_first_chunk(twin, batch, 4), 1e-5)

    def test_a_run_says_it_in_its_records_and_at_its_end(self):
        run, done = self.train(self.configuration(), "run")
        steps = cli.events(run, "step")
        self.assertNotIn("noise_scale", steps[18], "19 estimates are too few")
        traces, norms = ([step[key] for step in steps] for key in KEYS[:2])
        # Exponential means that are corrected for their start, of both estimates by themselves.
        weights = [0.999 ** (len(steps) - 1 - i) for i in range(len(steps))]
        trace, norm = (sum(w * value for w, value in zip(weights, values)) / sum(weights) for values in (traces, norms))
        self.assertGreater(norm, 0)
        self.assertAlmostEqual(steps[-1]["noise_scale"], trace / norm, delta=1e-9 * trace / norm)
        self.assertGreater(steps[-1]["noise_scale_error"], 0)
        [summary] = cli.events(run, "summary")
        self.assertEqual([summary["noise"][key] for key in ("samples", "error")], [steps[-1][key] for key in KEYS[2:]])
        self.assertEqual(summary["noise"]["estimates"], 40)
        cost = 100 * sum(step["noise_ms"] for step in steps) / sum(step["step_ms"] for step in steps)
        self.assertAlmostEqual(summary["noise"]["cost_percent"], cost, delta=1e-6 * cost)
        [reported] = json.loads(cli.must_run("report", run, "--json").stdout)["runs"]
        self.assertEqual(reported["noise"], summary["noise"])
        self.assertRegex(done.stderr, r"gradient noise scale [\d.]+ \+- [\d.]+ samples after 40 estimates; its norms took [\d.]+ %")

    def test_every_third_step_alone_is_asked(self):
        run, _ = self.train(self.configuration(train={"steps": 10, "noise_scale_every_steps": 3}), "run")
        self.assertEqual([step["step"] for step in cli.events(run, "step") if "noise_trace" in step], [3, 6, 9])

    def test_a_resume_goes_on_bit_for_bit(self):
        changes = {"train": {"deterministic": True, "steps": 30, "noise_scale_every_steps": 2, "global_batch": 16},
                   "checkpoint": {"every_steps": 13, "keep": 9}}
        whole, _ = self.train(self.configuration(**changes), "whole")
        state = json.loads((cli.checkpoints(whole)[13] / "state.json").read_text(encoding="utf-8"))
        self.assertEqual(state["noise_scale"]["estimates"], 6)
        resumed, _ = self.train(self.folder / "run.toml", "resumed", "--resume", cli.checkpoints(whole)[13])
        theirs, ours = ([[step["step"], *(step.get(key) for key in KEYS)] for step in cli.events(run, "step") if step["step"] > 13]
                        for run in (whole, resumed))
        self.assertEqual(ours, theirs)
        self.assertEqual(len(ours), 17)

    def test_it_begins_anew_where_layers_freeze(self):
        config = self.configuration(
            model={"name": "toy_cnn"}, data={"samples": 200}, train={"steps": 0, "epochs": 2, "global_batch": 8},
            freeze={"policy": "schedule", "schedule": ["1: 1"], "elastic": False})
        run, _ = self.train(config, "run")
        steps = cli.events(run, "step")
        self.assertEqual([step["frozen_layers"] > 0 for step in steps], [False] * 25 + [True] * 25)
        known = {step["step"] for step in steps if "noise_scale" in step}
        self.assertTrue(known <= {*range(20, 26), *range(45, 51)}, "a mean of two different sets of parameters")
        self.assertTrue(known)

    def test_without_it_every_number_is_the_same_and_no_record_speaks_of_it(self):
        changes = {"deterministic": True, "steps": 6}
        on, _ = self.train(self.configuration("on", train=changes), "on")
        off, _ = self.train(self.configuration("off", train={**changes, "noise_scale_every_steps": 0}), "off")
        self.assertEqual(cli.column(on, "loss"), cli.column(off, "loss"))
        for name in ("model.safetensors", "optimizer.safetensors"):
            self.assertEqual(*((cli.checkpoints(run)[6] / name).read_bytes() for run in (on, off)))
        self.assertNotIn("noise", (off / "metrics.jsonl").read_text(encoding="utf-8"))
        self.assertNotIn("noise_scale\"", (cli.checkpoints(off)[6] / "state.json").read_text(encoding="utf-8"))

    def test_where_it_has_nothing_to_compare_it_says_so(self):
        run, done = self.train(self.configuration(train={"steps": 2}, replicas={"local": 1}), "run")
        self.assertIn("the noise scale is not measured: one replica with one micro-batch", done.stderr)
        self.assertNotIn("noise", (run / "metrics.jsonl").read_text(encoding="utf-8"))
        served = cli.run("train", self.configuration(replicas={"local": 1, "sync": "ps"}), "--run-dir", self.folder / "ps")
        self.assertEqual(served.returncode, 2)
        self.assertIn("train.noise_scale_every_steps compares the replicas' gradients of one step", cli.error_of(served))
        normalised = self.configuration("sync", model={"name": "resnet8"}, train={"steps": 1}, pipeline={"batch_norm": "sync"})
        self.assertIn("gradients dependent", self.train(normalised, "normalised")[1].stderr)


if __name__ == "__main__":
    unittest.main()
