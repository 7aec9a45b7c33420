#!/usr/bin/env python3
"""sluice tune --allow-batch-change: the goodput of each batch, the proposal and its learning rate, what is refused.

    tune_batch_test.py [unittest options]        SLUICE_BINARY names the binary

Goodput and rates are computed anew from the noise scale and the predicted steps (McCandlish et al. 2018, Pollux 2021,
AdaScale 2020).
"""

import json
import math
import tomllib
import unittest

import long_tests
import sluice_cli as cli
import tuning_case

BATCH, LR = 48, 0.05
RULES = {
    "linear": lambda phi, batch: batch / BATCH,
    "sqrt": lambda phi, batch: math.sqrt(batch / BATCH),
    # (var + sqr) / (var / scale + sqr) with var = tr(Sigma) / B0 and sqr = |G|^2, so var / sqr = phi / B0
    "adascale": lambda phi, batch: (phi / BATCH + 1) / (phi / batch + 1),
    "adamscale": lambda phi, batch: math.sqrt((phi / BATCH + 1) / (phi / batch + 1)),
}


class TuneBatchTest(tuning_case.TuningCase):
    TABLES = {"device": {"list": "cpu", "threads": 1}, "model": {"name": "mlp", "image_size": 16},
              "data": {"name": "shapes", "samples": 480},
              "train": {"steps": 40, "global_batch": BATCH, "lr": LR, "optimizer": "sgd"},
              "pipeline": {"stages": 2, "chunks": 2}, "profile": {"steps": 2}}

    def run_with_noise(self, phi, error, config=None):
        """A run directory whose last step but one has this noise scale."""
        run = self.folder / f"noise-{phi}"
        run.mkdir()
        (run / "config.toml").write_text(cli.must_run("config", "--all", config or self.config).stdout, encoding="utf-8")
        lines = [{"event": "step", "time_s": 1, "step": 1, "loss": 2.0, "noise_trace": 5, "noise_squared_norm": 1},
                 {"event": "step", "time_s": 2, "step": 20, "loss": 2.0, "noise_scale": phi / 2, "noise_scale_error": 1},
                 {"event": "step", "time_s": 3, "step": 21, "loss": 2.0, "noise_scale": phi, "noise_scale_error": error},
                 {"event": "step", "time_s": 4, "step": 22, "loss": 2.0}]
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return run

    def tune(self, *words, config=None, profile=None):
        done = cli.must_run("tune", config or self.config, "--profile", profile or self.profile(), "--verify", 0, "--out", self.out,
                            "--allow-batch-change", "--json", *words)
        return json.loads(done.stdout)

    def assert_table(self, batch, phi, rule):
        for choice in batch["choices"]:
            samples = choice["batch"]
            efficiency = (phi + BATCH) / (phi + samples)
            self.assertAlmostEqual(choice["samples_per_s"], samples / choice["step_s"], delta=1e-6)
            self.assertAlmostEqual(choice["efficiency"], efficiency, delta=1e-12)
            self.assertAlmostEqual(choice["goodput"], samples / choice["step_s"] * efficiency, delta=1e-6)
            self.assertAlmostEqual(choice["lr"], LR * RULES[rule](phi, samples), delta=1e-12)
            self.assertEqual(choice["plan"]["global_batch"], samples)
        best = max(batch["choices"], key=lambda choice: choice["goodput"])
        self.assertEqual((batch["proposed"], batch["lr"]), (best["batch"], best["lr"]))

    def test_the_proposal_is_that_of_the_formulas_and_alone_changes_training(self):
        before = tomllib.loads(cli.must_run("config", "--all", self.config).stdout)
        cases = ((300.0, "adascale", ()), (20000.0, "linear", ("--batches", "16:256")), (2.0, "sqrt", ()),
                 (300.0, "adamscale", ("--batches", "48:96")))
        for phi, rule, words in long_tests.some(cases[:2], cases, "tests/tune has all rules"):
            with self.subTest(phi=phi, rule=rule):
                run = self.folder / f"noise-{phi}"
                run = run if run.exists() else self.run_with_noise(phi, 20.0)
                result = self.tune("--noise-from", run, *words, *(() if rule == "adascale" else ("--rate-rule", rule)))
                batch = result["batch"]
                self.assertEqual((batch["present"], batch["noise_scale"], batch["noise_scale_error"]), (BATCH, phi, 20.0))
                self.assert_table(batch, phi, rule)
                self.assertEqual(result["chosen"]["plan"]["global_batch"], batch["proposed"])
                rates = result["chosen"]["samples_per_s"] / result["configured"]["samples_per_s"]
                self.assertAlmostEqual(result["speedup"]["factor"], rates, delta=1e-9 * rates, msg="of another batch too")
                tuned = self.tuned()
                self.assertEqual(tuned["train"]["global_batch"], batch["proposed"])
                self.assertAlmostEqual(tuned["train"]["lr"], batch["lr"], delta=1e-12)
                for table in before.keys() - {"pipeline", "replicas", "device", "train"}:
                    self.assertEqual(tuned[table], before[table], table)
                kept = before["train"] | {key: tuned["train"][key] for key in ("global_batch", "lr")}
                self.assertEqual(tuned["train"], kept)
                said = " ".join(batch["assumptions"])
                self.assertIn(f"of {run} up to step 21", said)
                self.assertIn("predictions from the profile", said)
                self.assertIn("by the rule '" + rule, said)
                self.assertEqual("The rule for the rate was chosen by train.optimizer" in said, rule == "adascale")
                self.assertEqual("train.steps stays 40" in said, batch["changed"])
                goodput = {choice["batch"]: choice["goodput"] for choice in batch["choices"]}
                is_small = batch["changed"] and goodput[batch["proposed"]] < 1.1 * goodput[BATCH]
                self.assertEqual("The gain is smaller than" in said, is_small)

    def test_a_large_noise_scale_takes_the_most_samples_a_second_and_none_the_fastest_step(self):
        by_samples = self.tune("--noise-from", self.run_with_noise(1e12, 1.0))["batch"]
        self.assertEqual(by_samples["proposed"], max(by_samples["choices"], key=lambda one: one["samples_per_s"])["batch"])
        by_steps = self.tune("--noise-from", self.run_with_noise(0.0, 0.0))["batch"]
        self.assertEqual(by_steps["proposed"], min(by_steps["choices"], key=lambda one: one["step_s"])["batch"])
        self.assertLess(by_steps["proposed"], BATCH)
        self.assertEqual([one["batch"] for one in by_steps["choices"]][0], 16)

    def test_adam_and_its_kin_take_the_square_root_of_the_gain(self):
        run = self.run_with_noise(300.0, 20.0)
        rules = (("adamw", "adamscale"), ("momentum", "adascale"), ("rmsprop", "adamscale"))
        for optimizer, rule in long_tests.some(rules[:1], rules, "each measures and tunes"):
            profile, choice = self.folder / f"{optimizer}.json", ("--set", f"train.optimizer={optimizer}")
            cli.must_run("profile", self.config, *choice, "--out", profile)
            batch = self.tune("--noise-from", run, "--batches", "24:96", *choice, profile=profile)["batch"]
            self.assert_table(batch, 300.0, rule)
            self.assertIn(f'chosen by train.optimizer = "{optimizer}"', " ".join(batch["assumptions"]))

    def test_a_micro_batch_beyond_the_profile_is_said_to_be_extrapolated(self):
        measured = max(times["samples"] for times in json.loads(self.profile().read_text(encoding="utf-8"))["layers"][0]["times"])
        batch = self.tune("--noise-from", self.run_with_noise(300.0, 9.0), "--keep", "pipeline.chunks", "--keep", "replicas.local")["batch"]
        for choice in batch["choices"]:
            plan = choice["plan"]
            micro_batch = math.ceil(math.ceil(choice["batch"] / plan["replicas"]) / plan["chunks"])
            self.assertEqual(choice["is_extrapolated"], micro_batch > measured, choice["batch"])
        self.assertTrue(any(choice["is_extrapolated"] for choice in batch["choices"]))
        self.assertIn("are extrapolated linearly", " ".join(batch["assumptions"]))

    def test_without_a_run_a_short_one_finds_the_noise_scale(self):
        done = cli.must_run("tune", self.config, "--profile", self.profile(), "--verify", 0, "--out", self.out,
                            "--allow-batch-change", "--batches", "32:64")
        self.assertRegex(done.stdout, r"gradient noise scale [\d.]+ \+- [\d.]+ samples")
        self.assertIn("the first 200 steps of training from fresh weights", done.stdout)
        self.assertRegex(done.stdout, r" {2}present")
        self.assertRegex(done.stdout, r"tuned.toml (has train.global_batch = \d+ \(was 48\)|keeps train.global_batch = 48)")
        summary = json.loads(cli.must_run("train", self.out, "--run-dir", self.folder / "run", "--json").stdout)
        self.assertEqual(summary["steps"], 40)

    def test_the_short_run_trains_at_the_configured_rate(self):
        wild = self.configuration("wild", train={"lr": 1e30})
        done = cli.run("tune", wild, "--profile", self.profile(), "--verify", 0, "--out", self.out, "--allow-batch-change")
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertIn("measuring the noise scale failed", cli.error_of(done))

    def refused(self, *words, config=None):
        done = cli.run("tune", config or self.config, "--profile", self.profile(), "--out", self.out, *words)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertFalse(self.out.exists())
        return cli.error_of(done)

    def test_what_it_refuses(self):
        run = self.run_with_noise(300.0, 9.0)
        lone = (("--noise-from", run), ("--batches", "8:16"), ("--rate-rule", "linear"))
        for words in long_tests.some(lone[:1], lone, "other options"):
            self.assertIn("need --allow-batch-change", self.refused(*words))
        ranges = ("64:16", "a:b", "0:8", "8:", "8:16x")
        for text in long_tests.some(ranges[:1], ranges, "tests/tune has more of them"):
            self.assertIn("is not a range of batches", self.refused("--allow-batch-change", "--batches", text), text)
        self.assertIn("lies between 50 and 55", self.refused("--allow-batch-change", "--noise-from", run, "--batches", "50:55"))
        self.assertIn("is not a run directory", self.refused("--allow-batch-change", "--noise-from", self.folder / "nowhere"))
        other = self.run_with_noise(7.0, 1.0, self.configuration("other", model={"name": "toy_cnn"}))
        self.assertIn('has model.name = "toy_cnn"', self.refused("--allow-batch-change", "--noise-from", other))
        self.assertIn("has 480 samples, so a batch of 488 is impossible",
                      self.refused("--allow-batch-change", "--noise-from", run, "--batches", "8:488"))
        more = self.run_with_noise(8.0, 1.0, self.configuration("more", data={"samples": 960}))
        self.assertIn("has data.samples = 960", self.refused("--allow-batch-change", "--noise-from", more))
        (run / "metrics.jsonl").write_text('{"event":"step","time_s":1,"step":1,"noise_trace":3}\n', encoding="utf-8")
        self.assertIn("has no noise scale; train with train.noise_scale_every_steps",
                      self.refused("--allow-batch-change", "--noise-from", run))


if __name__ == "__main__":
    unittest.main()
