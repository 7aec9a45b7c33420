#!/usr/bin/env python3
"""train.precision = "bf16" from outside: schedules, replicas, processes, resumes, checkpoints, divergence, memory.

    bf16_test.py [unittest options]        SLUICE_BINARY names the binary

What a step computes stands beside torch.autocast in bf16_gradients_test.py.
"""

import json
import os
import pathlib
import tempfile
import unittest

import long_tests
import sluice_cli as cli

try:
    from safetensors import numpy as safetensors
except ImportError as missing:
    raise unittest.SkipTest(f"{missing}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")

MODELS = {
    "resnet8": {"name": "resnet8", "image_size": 16},
    "vit": {"name": "vit", "size": "nano", "image_size": 16, "dropout": 0.1},
    "gpt2": {"name": "gpt2", "size": "nano", "dropout": 0.1},
    "convnext": {"name": "convnext", "size": "tiny", "stochastic_depth": 0.2},
}
# stages, schedule, recompute; one thread a device, which oneDNN's sums depend on: all in four micro-batches, which add to each gradient in the same order.
PLANS = [(1, "1f1b", "none"), (2, "gpipe", "none"), (2, "1f1b", "layer"), (3, "1f1b", "none"), (2, "zb-h1", "none"),
         (2, "zb-h1", "layer"), (1, "interleaved", "none"), (2, "zb-v", "none")]


class Bf16Test(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def config(self, model="resnet8", **tables):
        train = {"deterministic": True, "precision": "bf16", "steps": 6, "global_batch": 16, "lr": 0.05, "seed": 3,
                 "optimizer": "momentum", **tables.pop("train", {})}
        data = {"name": "toy"} if model == "gpt2" else {"name": "shapes", "samples": 72, "flip": True}
        return cli.write_config(
            self.folder / "run.toml", device={"list": "cpu", "threads": 1}, model=MODELS[model], data=data, train=train,
            checkpoint={"every_steps": 3, "keep": 100}, log={"every": 1}, **tables)

    def step(self, config, *options):
        out = self.folder / "out.safetensors"
        cli.must_run("step", config, "--out", out, *options)
        return safetensors.load_file(out)

    def assert_same(self, ours, theirs, message=None):
        self.assertEqual(ours.keys(), theirs.keys())
        for name, value in ours.items():
            self.assertTrue(value.tobytes() == theirs[name].tobytes(), f"{message}: {name}")

    def train(self, config, name, *options):
        cli.must_run("train", config, "--run-dir", self.folder / name, *options)
        return self.folder / name

    def losses(self, run):
        return [line["loss"] for line in cli.events(run, "step")]

    def checkpoint(self, run, step):
        folder = cli.checkpoints(run)[step]
        return {file: safetensors.load_file(folder / file) for file in ("model.safetensors", "optimizer.safetensors")}

    def test_schedules_stages_and_recomputation_give_the_same_bits(self):
        for model in long_tests.some(["resnet8", "vit"], list(MODELS), "one has batch-norm, one attention and dropout"):
            config = self.config(model)
            results = {}
            for stages, schedule, recompute in long_tests.some([PLANS[0], *PLANS[2::3], PLANS[7]], PLANS, "other stages and schedules"):
                plan = cli.options(pipeline={"stages": stages, "schedule": schedule, "recompute": recompute, "chunks": 4})
                results[stages, schedule, recompute] = self.step(config, *plan)
            first = results.pop(PLANS[0])
            for plan, result in results.items():
                self.assert_same(result, first, f"{model} {plan}")
            self.assertEqual({value.dtype.name for value in first.values() if value.dtype.kind == "f"}, {"float32", "float64"},
                             "gradients, parameters and logits are float32, the loss float64")
            other = self.step(config, *cli.options(train={"precision": "fp32"}, pipeline={"chunks": 4}))
            self.assertNotEqual(other["logits"].tobytes(), first["logits"].tobytes(), "it computes in another precision")

    def test_a_resume_is_bit_exact(self):
        config = self.config(pipeline={"stages": 2, "chunks": 2}, replicas={"local": 2})
        whole = self.train(config, "whole")
        again = self.train(config, "again", "--resume", whole / "checkpoints" / "step-3")
        self.assertEqual(self.losses(again), self.losses(whole)[3:])
        for file, tensors in self.checkpoint(whole, 6).items():
            self.assert_same(self.checkpoint(again, 6)[file], tensors, file)

    def test_checkpoints_are_float32_and_go_both_ways(self):
        for model in long_tests.some(("resnet8",), ("resnet8", "vit"), "the one with buffers"):
            config = self.config(model, pipeline={"stages": 2, "chunks": 2})
            runs = {"bf16": self.train(config, f"{model} bf16"),
                    "fp32": self.train(config, f"{model} fp32", *cli.options(train={"precision": "fp32"}))}
            kinds = {value.dtype.name for tensors in self.checkpoint(runs["bf16"], 3).values() for value in tensors.values()}
            self.assertLessEqual(kinds, {"float32", "int64"})
            for saved, other in (("bf16", "fp32"), ("fp32", "bf16")):
                done = cli.must_run(
                    "train", config, "--run-dir", self.folder / f"{model} from {saved}",
                    "--resume", runs[saved] / "checkpoints" / "step-3",
                    *cli.options(train={"precision": other}, pipeline={"stages": 1, "chunks": 2}))
                self.assertIn(f'train.precision = "{other}" (was "{saved}")', done.stderr)
                first = self.losses(self.folder / f"{model} from {saved}")[0]
                expected = self.losses(runs[saved])[3]
                self.assertNotEqual(first, expected, "it computes in the other precision")
                self.assertLess(abs(first / expected - 1), 0.02, "the step after the checkpoint, of the same weights")
            refused = cli.run("train", config, "--resume", runs["bf16"] / "checkpoints" / "step-3", "--run-dir",
                              self.folder / "refused", *cli.options(train={"precision": "fp64"}))
            self.assertEqual(refused.returncode, 2, refused.stderr)
            self.assertIn("train.precision", cli.error_of(refused))

    def test_replicas_and_synchronised_batch_norm_train_on_all_samples(self):
        config = self.config(train={"global_batch": 18})
        one = self.step(config, *cli.options(pipeline={"chunks": 2}))
        two = self.step(config, *cli.options(replicas={"local": 2}))
        synced = self.step(config, *cli.options(replicas={"local": 2}, pipeline={"batch_norm": "sync"}))
        alone = self.step(config, *cli.options(pipeline={"batch_norm": "sync"}))

        def distance(a, b):
            names = [name for name in a if name.startswith("grad/")]
            apart = sum(((a[name] - b[name]).astype("f8") ** 2).sum() for name in names)
            return (apart / sum((b[name].astype("f8") ** 2).sum() for name in names)) ** 0.5

        # Two replicas normalise by the micro-batches of one device in two chunks: only the order of sums differs.
        self.assertLess(distance(two, one), 1e-5)
        self.assertLess(distance(synced, alone), 0.1, "rounding, enlarged by the ReLUs")
        self.assertGreater(distance(two, alone), 0.2, "other statistics")

    def test_numbers_that_are_not_finite_end_the_run(self):
        config = self.config(train={"lr": 1e30})
        done = cli.run("train", config, "--run-dir", self.folder / "run")
        self.assertEqual(done.returncode, 6, done.stderr)

    @long_tests.only("50 s")
    def test_activations_take_half_the_memory_and_what_is_predicted(self):
        tables = {"pipeline": {"stages": 2, "chunks": 4}, "train": {"global_batch": 64, "steps": 2, "eval_batch": 8}}
        peaks, live = {}, {}
        for precision in ("fp32", "bf16"):
            config = self.config(**tables)
            chosen = cli.options(train={"precision": precision})
            cli.must_run("profile", config, "--out", self.folder / "profile.json", *chosen)
            profile = json.loads((self.folder / "profile.json").read_text())
            self.assertEqual(profile["fingerprint"]["precision"], precision)
            for stage in profile["stage_memory"]:
                self.assertEqual(stage["live_bytes"], stage["predicted_live_bytes"], (precision, stage))
            live[precision] = sum(stage["live_bytes"] for stage in profile["stage_memory"])
            for device in profile["device_memory"]:
                self.assertLess(abs(device["predicted_peak_bytes"] / device["peak_bytes"] - 1), 0.1, (precision, device))
            summary = cli.events(self.train(config, precision, *chosen), "summary")[0]
            peaks[precision] = max(summary["peak_memory_by_kind"][d]["activations"] for d in ("cpu:0", "cpu:1"))
            if precision == "fp32" and not long_tests.RUN:
                continue
            refused = cli.run("simulate", config, "--profile", self.folder / "profile.json",
                              *cli.options(train={"precision": "fp32" if precision == "bf16" else "bf16"}))
            self.assertEqual(refused.returncode, 2, refused.stderr)
            self.assertIn("train.precision", cli.error_of(refused))
        self.assertLess(live["bf16"], 0.6 * live["fp32"])
        self.assertLess(peaks["bf16"], 0.75 * peaks["fp32"])

    def test_a_cpu_without_its_instructions_is_named(self):
        config = self.config(train={"steps": 1})
        slow = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
        done = cli.run("train", config, "--run-dir", self.folder / "run", env=slow)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r'train.precision = "bf16": this CPU has no fast instructions for it .* takes [\d.]+ times')
        self.assertNotIn("no fast instructions", cli.must_run("train", config, "--run-dir", self.folder / "fp32",
                                                              *cli.options(train={"precision": "fp32"}), env=slow).stderr)


if __name__ == "__main__":
    unittest.main()
