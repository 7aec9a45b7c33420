#!/usr/bin/env python3
"""sluice tune: what it measures, chooses and writes.

    tune_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import json
import math
import os
import pathlib
import shlex
import tomllib
import unittest

import long_tests
import sluice_cli as cli
import tuning_case

BATCH = tuning_case.BATCH


def slow_and_exact(node, factor):
    """What a profile says of layers, with all seconds multiplied, no error, and a core for each device."""
    exact = {"error": 0, "slowdown": 1}
    if isinstance(node, list):
        return [slow_and_exact(one, factor) for one in node]
    if not isinstance(node, dict):
        return node
    return {key: exact[key] if key in exact else value * factor if key.endswith("_s") else slow_and_exact(value, factor)
            for key, value in node.items()}


class TuneTest(tuning_case.SmallTuningCase):
    def test_what_it_writes_is_a_configuration_that_differs_in_the_plan_alone(self):
        own = "# mine\n" + self.config.read_text(encoding="utf-8")
        self.config.write_text(own, encoding="utf-8")
        result = self.tune("--profile", self.profile(), "--verify", 2)
        plan, tuned = result["chosen"]["plan"], self.tuned()
        said = self.out.read_text(encoding="utf-8").splitlines()
        of_plan = ("stages", "virtual", "chunks", "schedule", "partition", "recompute", "local")
        self.assertEqual([line for line in said[2:] if not line.startswith(of_plan)],
                         [line for line in own.splitlines() if not line.startswith(of_plan)])
        self.assertEqual(tuned["pipeline"]["partition"], plan["partition"])
        self.assertEqual(tuned["pipeline"]["chunks"], plan["chunks"])
        self.assertEqual(tuned["replicas"]["local"], plan["replicas"])
        before = tomllib.loads(cli.must_run("config", "--all", self.config).stdout)
        for table in before.keys() - {"pipeline", "replicas", "device"}:
            self.assertEqual(tuned[table], before[table], table)
        summary = json.loads(cli.must_run("train", self.out, "--run-dir", self.folder / "run", "--json").stdout)
        self.assertEqual(summary["steps"], 40)

        self.assertEqual(len(result["verified"]), 2)
        ran = [*result["verified"], result["configured"]]
        fastest = min(ran, key=lambda one: one["measured_step_s"])
        chosen = next(one for one in ran if one["plan"] == result["chosen"]["plan"])
        noise = 2 * math.hypot(chosen["measured_error"], fastest["measured_error"])
        self.assertLessEqual(chosen["measured_step_s"], fastest["measured_step_s"] * (1 + noise) * (1 + 1e-9))
        for one in result["verified"]:
            self.assertAlmostEqual(one["error"], one["step_s"] / one["measured_step_s"] - 1, delta=1e-12)
            self.assertGreater(one["terms"]["compute_s"]["measured"], 0)
        rates = [one["samples_per_s"] for one in result["best"]]
        rates = [float(f"{rate:.9g}") for rate in rates]  # the search counts others as equal
        self.assertEqual(rates, sorted(rates, reverse=True))
        self.assertLessEqual(len(rates), 10)
        for one in result["best"]:
            self.assertAlmostEqual(one["samples_per_s"] * one["step_s"], BATCH, delta=1e-9)

    def test_the_plan_as_configured_is_predicted_and_measured_beside_the_best(self):
        profile = self.profile()
        said = json.loads(cli.must_run("simulate", self.config, "--profile", profile, "--json").stdout)
        done = cli.must_run("tune", self.config, "--out", self.out, "--profile", profile, "--verify", 1)
        rows = [line for line in done.stdout.splitlines() if line.startswith("as configured: 1 x 2 devices, 1f1b, chunks 2, layers ")]
        self.assertEqual(len(rows), 1, done.stdout)
        predicted, _, measured, error = rows[0].split("layers ")[1].split()[1:5]
        predicted_ms = said["step_s"] * 1e3
        self.assertEqual(predicted, f"{predicted_ms:.1f}")
        least, most = (100 * (predicted_ms / (float(measured) + rounding) - 1) for rounding in (0.051, -0.051))
        self.assertTrue(least - 0.051 <= float(error) <= most + 0.051, rows[0])
        last = done.stdout.splitlines()[-1]
        self.assertRegex(last, r", (\d+\.\d\d times the samples/s of the configured plan \(measured\)|the plan as configured); written to ")

        result = self.tune("--profile", profile, "--verify", 1)
        configured, runs = result["configured"], [*result["verified"], result["configured"]]
        self.assertAlmostEqual(configured["step_s"], said["step_s"], delta=1e-12)
        self.assertEqual(configured["plan"]["chunks"], 2)
        chosen = next(one for one in runs if one["plan"] == result["chosen"]["plan"])
        self.assertEqual(result["speedup"]["by"], "runs")
        self.assertAlmostEqual(result["speedup"]["factor"], configured["measured_step_s"] / chosen["measured_step_s"], delta=1e-9)

        result = self.tune("--profile", profile, "--verify", 0)
        self.assertNotIn("measured_step_s", result["configured"])
        self.assertEqual(result["speedup"]["by"], "prediction")
        self.assertAlmostEqual(result["speedup"]["factor"], result["configured"]["step_s"] / result["chosen"]["step_s"], delta=1e-9)

    def test_a_micro_batch_that_was_set_gives_way_to_the_chunks_of_the_plan(self):
        profile, slow = self.profile(), self.folder / "slow.json"
        measured = json.loads(profile.read_text(encoding="utf-8"))
        # Else a busy machine costs each micro-batch as much as waiting does, and no measurement tells the plans apart.
        measured["layers"] = slow_and_exact(measured["layers"], 20)
        measured["step"]["compute_deviation"] = 0
        slow.write_text(json.dumps(measured), encoding="utf-8")
        plan = self.tune("--profile", slow, "--verify", 0, "--keep", "pipeline.stages", "--set", "pipeline.chunks=1",
                         "--set", f"train.micro_batch={BATCH}")["chosen"]["plan"]
        self.assertGreater(plan["chunks"], 1, "of one chunk one of the two stages always waits")
        cli.must_run("train", self.out, "--run-dir", self.folder / "run")
        self.assertEqual(cli.events(self.folder / "run", "plan")[0]["chunks"], plan["chunks"])

    @long_tests.only("13 s")
    def test_batch_norm_normalises_16_samples_or_as_many_as_now(self):
        config, profile = self.configuration("normalised", model={"name": "resnet8"}), self.folder / "normalised.json"
        cli.must_run("profile", config, "--out", profile)
        for chunks, least in ((4, 12), (1, 16), (2, 16)):
            for one in self.tune("--profile", profile, "--verify", 0, "--keep", "pipeline.chunks", "--set", f"pipeline.chunks={chunks}", config=config)["best"]:
                self.assertGreaterEqual(BATCH // chunks // one["plan"]["replicas"], least)

    def test_where_nothing_is_predicted_of_the_configured_plan_it_says_why(self):
        profile = self.profile()
        threads = max(2, len(os.sched_getaffinity(0)))  # of the one device of this plan
        cases = (("device 0 needs ", ("--memory", "2MiB", "--set", "pipeline.partition=[3,1]", "--set", "pipeline.chunks=1")),
                 ('pipeline.chunks = "auto"', ("--set", "pipeline.chunks=auto")),
                 (f"there is no profile with {threads} threads a device", ("--set", "device.threads=0", "--set", "pipeline.stages=1")),
                 ("pipeline.partition adds up to 3 layers, but toy_cnn has 4", ("--set", "pipeline.partition=[1,2]")))
        for why, words in long_tests.some(cases[:2], cases, "each tunes twice"):
            with self.subTest(why=why):
                result = self.tune("--profile", profile, "--verify", 0, *words)
                self.assertIn(why, result["configured"]["not_predicted"])
                self.assertNotIn("speedup", result)
                done = cli.must_run("tune", self.config, "--profile", profile, "--verify", 0, "--out", self.out, *words)
                self.assertRegex(done.stdout, r"\nas configured +not predicted")
                self.assertIn(f"as configured: not predicted: {result['configured']['not_predicted']}", done.stdout)
                self.assertNotIn("configured", done.stdout.splitlines()[-1])

    @long_tests.only("the next test measures by itself, too")
    def test_it_measures_by_itself_and_keeps_what_is_to_stay(self):
        result = self.tune("--keep", "pipeline.stages", "--keep", "pipeline.schedule", "--keep", "replicas.local",
                           "--verify", 1, "--budget", 100)
        for one in result["best"]:
            self.assertEqual((one["plan"]["stages"], one["plan"]["schedule"], one["plan"]["replicas"]), (2, "1f1b", 1))
        self.assertEqual(result["threads"], 1)
        self.assertIn("first_guess_chunks", result)
        self.assertTrue(result["is_verified"])
        self.assertRegex(result["budget_use"], r"^[0-9.]+ of 100.0 s: measuring [0-9.]+ s, searching [0-9.]+ s, running plans [0-9.]+ s$")

    def test_the_profile_that_it_measures_lies_beside_the_plan_and_predicts_it_again(self):
        out, kept, given = self.folder / "a plan.toml", self.folder / "a plan.profile.json", self.profile()
        kept.write_bytes(given.read_bytes())
        done = cli.must_run("tune", self.config, "--out", out, "--verify", 0)
        (line,) = [line for line in done.stdout.splitlines() if line.startswith("to predict it again: ")]
        words = shlex.split(line.removeprefix("to predict it again: "))
        self.assertEqual(words, ["sluice", "simulate", str(out), "--profile", str(kept)])
        self.assertIn(f"\nmeasured: {kept} (replaces an older one)\n", done.stdout)
        self.assertNotEqual(kept.read_bytes(), given.read_bytes(), "measured anew")
        said = json.loads(cli.must_run(*words[1:], "--json").stdout)
        self.assertEqual(said["plan"]["partition"], self.tuned(out)["pipeline"]["partition"])
        self.assertIn(f"{said['step_s'] * 1e3:.1f}", done.stdout)

        kept.write_text("notes of mine", encoding="utf-8")
        refused = cli.run("tune", self.config, "--out", out)
        self.assertEqual(refused.returncode, 2)
        self.assertIn(f"{kept} exists and is not a Sluice profile", cli.error_of(refused))
        self.assertNotIn("measuring", refused.stderr)
        result = json.loads(cli.must_run("tune", self.config, "--out", out, "--verify", 0, "--profile", given, "--json").stdout)
        self.assertEqual(result["profiles"], [])
        self.assertEqual(shlex.split(result["simulate"]), ["sluice", "simulate", str(out), "--profile", str(given)])
        self.assertEqual(kept.read_text(encoding="utf-8"), "notes of mine")

    @long_tests.only("it measures once for each number of threads")
    def test_one_profile_for_each_number_of_threads_is_kept(self):
        cores = len(os.sched_getaffinity(0))
        if cores < 2:
            self.skipTest("one core: one number of threads")
        shared = self.configuration("shared", device={"threads": 0}, pipeline={"stages": 1, "chunks": 1})
        result = self.tune("--verify", 0, "--budget", 300, config=shared)
        threads = {json.loads(pathlib.Path(file).read_text(encoding="utf-8"))["fingerprint"]["threads_per_device"]: file
                   for file in result["profiles"]}
        self.assertEqual(threads[result["threads"]], str(self.folder / "tuned.profile.json"))
        for count, file in threads.items():
            if count != result["threads"]:
                self.assertEqual(file, str(self.folder / f"tuned.profile.{count}-thread{'s' if count > 1 else ''}.json"))
        self.assertEqual(set(threads), {cores // used for used in range(1, min(cores, 8) + 1)})

    @long_tests.only("it measures once more")
    def test_a_model_with_fewer_layers_than_devices_is_measured_in_a_shape_that_it_can_have(self):
        few = self.configuration("few", model={"name": "mlp"}, pipeline={"stages": 1, "chunks": 1}, replicas={"local": 4})
        result = self.tune("--keep", "replicas.local", "--verify", 0, config=few)
        self.assertEqual({(one["plan"]["stages"], one["plan"]["replicas"]) for one in result["best"]}, {(1, 4)})

    def test_a_budget_that_is_too_small_for_a_run_says_so(self):
        profile = self.profile()
        result = self.tune("--profile", profile, "--budget", 2)
        self.assertFalse(result["is_verified"])
        self.assertEqual(result["verified"], [])
        self.assertEqual(result["chosen"], {key: result["best"][0][key] for key in result["chosen"]})
        self.assertIn("plan 1 of 3 was not run: it would take about", result["left_out"])
        self.assertIn("not verified by a run", self.out.read_text(encoding="utf-8").splitlines()[0])
        done = cli.must_run("tune", self.config, "--profile", profile, "--budget", 2, "--out", self.out)
        for words in (result["left_out"].split(",")[0], "of 2.0 s: measuring", "not verified by a run"):
            self.assertIn(words, done.stdout)
        self.assertIn("of the budget of 2.0 s: measuring at most 1.2 s, searching at most 0.4 s", done.stderr)
        self.out.unlink()
        self.assert_refused(2, "measuring the layers exceeded", "raise --budget",
                            words=("--out", self.out, "--budget", 1, "--set", "model.name=resnet50"))  # slow on any machine

    @long_tests.only("it measures once more")
    def test_a_profile_of_many_threads_says_nothing_of_more_devices(self):
        cores = len(os.sched_getaffinity(0))
        shared = self.configuration("shared", device={"threads": 0}, pipeline={"stages": 1, "chunks": 1})
        profile = self.folder / "shared.json"
        cli.must_run("profile", shared, "--out", profile)
        self.assertEqual(json.loads(profile.read_text(encoding="utf-8"))["fingerprint"]["threads_per_device"], cores)
        done = cli.must_run("tune", shared, "--out", self.out, "--profile", profile, "--verify", 0, "--json")
        for one in json.loads(done.stdout)["best"]:
            self.assertEqual((one["plan"]["stages"], one["plan"]["replicas"]), (1, 1))
        if cores > 1:
            self.assertIn("plans for more than 1 device are left out", done.stderr)


if __name__ == "__main__":
    unittest.main()
