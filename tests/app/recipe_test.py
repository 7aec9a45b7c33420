#!/usr/bin/env python3
"""What follows from a run's evaluations: a plateau's rates beside torch's scheduler, the best checkpoint, an early end, a
validation split; also across a resume and with two processes. Exits 77 without safetensors.

    recipe_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import json
import pathlib
import tempfile
import unittest

import numpy
import torch

import long_tests
import sluice_cli as cli

try:
    from safetensors.torch import load_file
except ModuleNotFoundError as missing:
    print(f"skipped: {missing}")
    raise SystemExit(77) from None

BATCHES, EPOCHS = 4, 12


def best_step(run_dir):
    """Of the first evaluation with the largest top-1."""
    return max(cli.events(run_dir, "eval"), key=lambda line: (line["top1"], -line["step"]))["step"]


class RecipeTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def configuration(self, name, **changes):
        """Rates so high that the evaluations go up and down."""
        tables = {
            "device": {"list": "cpu", "threads": 1},
            "model": {"name": "mlp"},
            "data": {"name": "shapes", "samples": 16 * BATCHES, "workers": 0},
            "train": {"epochs": EPOCHS, "global_batch": 16, "lr": 0.02, "precision": "fp64", "deterministic": True},
            "log": {"tensorboard": False}}
        return cli.write_config(self.folder / f"{name}.toml",
                                **{table: {**tables.get(table, {}), **changes.get(table, {})}
                                   for table in {**tables, **changes}})

    def train(self, config, name, *arguments, size=1):
        run_dir = self.folder / name
        done = cli.must_run_ranks(size, "train", config, "--run-dir", run_dir, *arguments)
        return run_dir, done[0].stderr

    @long_tests.only("8 s")
    def test_a_plateaus_rates_are_torchs(self):
        for by, mode in (("loss", "min"), ("top1", "max")):
            with self.subTest(by=by):
                config = self.configuration(by, train={
                    "lr_schedule": "plateau", "lr_patience": 1, "lr_decay": 0.5, "lr_min": 0.004, "best_by": by})
                run_dir, _ = self.train(config, by)
                optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.02)
                scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode, 0.5, 1, min_lr=0.004)
                rates = []
                for value in cli.column(run_dir, by, "eval"):
                    rates += [optimizer.param_groups[0]["lr"]] * BATCHES
                    scheduler.step(value)
                self.assertEqual(cli.column(run_dir, "lr"), rates)
                self.assertGreater(len(set(rates)), 1, "no rate fell, so nothing was tested")

                half, _ = self.train(config, f"{by}-half", "--set", "train.epochs=5")
                self.train(config, f"{by}-half", "--resume", "auto")
                self.assertEqual(cli.column(half, "lr"), rates)
                self.assertEqual(cli.column(half, "loss"), cli.column(run_dir, "loss"))
                both, _ = self.train(config, f"{by}-both", size=2)
                self.assertEqual(cli.column(both, "lr"), rates)

    def test_a_rate_that_has_fallen_stays_so_beside_other_evaluations(self):
        config = self.configuration("fallen", train={"lr_schedule": "plateau", "lr_patience": 0, "lr_decay": 0.1,
                                                     "best_by": "loss", "lr": 3, "eval_every_steps": 1, "steps": 6})
        run_dir, _ = self.train(config, "fallen")
        before = cli.column(run_dir, "lr")
        self.assertLess(before[-1], before[0], "no rate fell, so nothing was tested")
        self.train(config, "fallen", "--resume", "auto", "--set", "train.eval_limit=5", "--set", "train.steps=8")
        for rate in cli.column(run_dir, "lr")[6:]:
            self.assertLessEqual(rate, before[-1])

    def test_a_single_step_mixes_nothing(self):
        losses = set()
        for key in long_tests.some(("data.mixup=0", "data.cutmix=1"), ("data.mixup=0", "data.mixup=1", "data.cutmix=1"), "the other way to mix"):
            out = self.folder / "step.safetensors"
            cli.must_run("step", self.configuration("one"), "--set", key, "--out", out)
            losses.add(load_file(out)["loss"].item())
        self.assertEqual(len(losses), 1)

    def test_the_run_ends_early_and_goes_on_with_more_patience(self):
        config = self.configuration("stop", checkpoint={"every_steps": 1000})
        whole, _ = self.train(config, "whole")
        scores = cli.column(whole, "top1", "eval")
        patience = next((p for p in (1, 2, 3) if self.end_of(scores, p) < EPOCHS), None)
        self.assertIsNotNone(patience, f"{scores} always rise, so nothing is tested")
        end = self.end_of(scores, patience)
        for size in long_tests.some((1,), (1, 2), "two processes; only rank 0 evaluates"):
            run_dir, said = self.train(config, f"early-{size}", "--set", f"train.stop_patience={patience}", size=size)
            self.assertEqual(len(cli.events(run_dir, "eval")), end)
            self.assertEqual(max(cli.checkpoints(run_dir)), end * BATCHES)
            self.assertIn(f"the run ends early after step {end * BATCHES} of {EPOCHS * BATCHES}", said)
            self.assertEqual(cli.events(run_dir, "summary")[-1]["steps"], end * BATCHES)
            self.assertEqual(len(cli.events(run_dir, "early_stop")), 1)
        before = len(cli.column(run_dir, "step"))
        run_dir, said = self.train(config, "early-1", "--resume", "auto", "--set", f"train.stop_patience={patience}")
        self.assertIn("is complete after", said)
        self.assertEqual(len(cli.column(run_dir, "step")), before)
        run_dir, _ = self.train(config, "early-1", "--resume", "auto")
        self.assertEqual(cli.column(run_dir, "loss"), cli.column(whole, "loss"))
        last = EPOCHS * BATCHES
        self.assertEqual((cli.checkpoints(run_dir)[last] / "model.safetensors").read_bytes(),
                         (cli.checkpoints(whole)[last] / "model.safetensors").read_bytes())

    @staticmethod
    def end_of(scores, patience):
        """After how many evaluations a run ends, found by looking back from each."""
        for count in range(1, len(scores) + 1):
            first_best = scores.index(max(scores[:count]))
            if count - 1 - first_best >= patience:
                return count
        return len(scores)

    def test_the_best_checkpoint_stays(self):
        config = self.configuration("best", checkpoint={"best": True, "keep": 1})
        run_dir, said = self.train(config, "best")
        best = best_step(run_dir)
        self.assertLess(best, EPOCHS * BATCHES, "the last is the best, so nothing is tested")
        self.assertEqual(set(cli.checkpoints(run_dir)), {best, EPOCHS * BATCHES})
        self.assertIn(f"the best evaluation was after step {best}", said)
        link = run_dir / "checkpoints" / "best"
        self.assertEqual(link.resolve(), cli.checkpoints(run_dir)[best].resolve())
        found = json.loads(cli.must_run("eval", "--checkpoint", link, "--json").stdout)
        recorded = next(line for line in cli.events(run_dir, "eval") if line["step"] == best)
        for name in ("loss", "top1", "top5"):
            self.assertEqual(found[name], recorded[name])
        # A run that goes on keeps it, too.
        self.train(config, "best", "--resume", "auto", "--set", f"train.epochs={EPOCHS + 2}", "--set", "train.lr=1e-9")
        first_end, end = EPOCHS * BATCHES, (EPOCHS + 2) * BATCHES  # the first stays as the last that is known to be good
        self.assertEqual(set(cli.checkpoints(run_dir)), {best_step(run_dir), first_end, end})
        self.assertEqual(link.resolve(), cli.checkpoints(run_dir)[best_step(run_dir)].resolve())

    def test_the_best_is_found_by_averaged_weights_where_there_are_some(self):
        config = self.configuration("averaged", checkpoint={"best": True, "keep": 1}, train={"ema_decay": 0.9})
        run_dir, _ = self.train(config, "averaged")
        by = {name: [line[name] for line in cli.events(run_dir, "eval")] for name in ("top1", "ema_top1")}
        places = {name: values.index(max(values)) for name, values in by.items()}
        self.assertNotEqual(places["top1"], places["ema_top1"], f"{by}: nothing is tested")
        best = (run_dir / "checkpoints" / "best").resolve()
        self.assertEqual(best.name, f"step-{(places['ema_top1'] + 1) * BATCHES}")

    def test_mixed_batches_are_the_same_however_they_are_divided(self):
        config = self.configuration("mixed", data={"mixup": 0.8, "cutmix": 1.0, "flip": True}, train={"epochs": 4})
        run_dir, _ = self.train(config, "alone")
        losses = cli.column(run_dir, "loss")
        found = json.loads(cli.must_run("eval", "--checkpoint", run_dir, "--json", "--set", "data.mixup=0",
                                        "--set", "data.cutmix=0").stdout)
        self.assertEqual(found["loss"], cli.column(run_dir, "loss", "eval")[-1], "evaluation mixes nothing")
        plain, _ = self.train(config, "plain", "--set", "data.mixup=0", "--set", "data.cutmix=0")
        self.assertNotEqual(losses[0], cli.column(plain, "loss")[0])
        ways = (("processes", 2, {"pipeline.stages": 2, "replicas.local": 2}), ("stages", 1, {"pipeline.stages": 2, "pipeline.chunks": 4}),
                ("replicas", 1, {"replicas.local": 2}), ("workers", 1, {"data.workers": 2}))
        for name, size, sets in long_tests.some(ways[:1], ways, "each of them alone"):
            with self.subTest(name):
                words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
                divided, _ = self.train(config, name, *words, size=size)
                for ours, whole in zip(cli.column(divided, "loss"), losses, strict=True):
                    self.assertAlmostEqual(ours, whole, delta=1e-9 * whole)
        refused = cli.run("train", config, "--set", "model.name=gpt2", "--set", "model.size=nano", "--set",
                          "data.name=toy", "--set", "data.flip=false")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("data.mixup and data.cutmix are for images", cli.error_of(refused))

    def test_epochs_between_evaluations(self):
        config = self.configuration("every", train={"eval_every_epochs": 5})
        run_dir, _ = self.train(config, "every")
        self.assertEqual(cli.column(run_dir, "step", "eval"), [5 * BATCHES, 10 * BATCHES, EPOCHS * BATCHES])

    def test_what_is_held_out_is_not_trained_on(self):
        """Each training image has a class of its own, so that labels say which ones were held out."""
        images = numpy.random.default_rng(1).integers(0, 256, (40, 8, 8), dtype=numpy.uint8)
        for split, count in (("train", 40), ("test", 10)):
            numpy.save(self.folder / f"{split}_images.npy", images[:count])
            numpy.save(self.folder / f"{split}_labels.npy", numpy.arange(count))
        config = self.configuration("held", data={"name": "npy", "path": str(self.folder), "validation": 0.25},
                                    train={"epochs": 2, "global_batch": 5})
        run_dir, _ = self.train(config, "held")
        self.assertEqual(cli.column(run_dir, "samples", "eval"), [10, 10])
        self.assertEqual(sum(cli.column(run_dir, "samples")), 2 * 30)
        labels = {}
        for name, flags in (("held", ["--validation"]), ("test", [])):
            done = cli.must_run("eval", "--checkpoint", run_dir, "--json", "--logits", self.folder / f"{name}.safetensors", *flags)
            labels[name] = load_file(self.folder / f"{name}.safetensors")["labels"].tolist()
            if name == "held":
                self.assertEqual(json.loads(done.stdout)["loss"], cli.column(run_dir, "loss", "eval")[-1])
        self.assertEqual(labels["test"], list(range(10)))
        self.assertEqual(len(set(labels["held"])), 10)
        self.assertEqual(labels["held"], sorted(labels["held"]))
        refused = cli.run("eval", "--checkpoint", run_dir, "--validation", "--set", "data.validation=0")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("there is no validation set", cli.error_of(refused))
        other = cli.run("train", config, "--run-dir", run_dir, "--resume", "auto", "--set", "data.validation=0.5")
        self.assertEqual(other.returncode, 2)
        self.assertIn("data.validation", cli.error_of(other))


if __name__ == "__main__":
    unittest.main(verbosity=2)
