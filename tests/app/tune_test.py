#!/usr/bin/env python3
"""sluice tune, and sluice simulate CONFIG --profile: what they predict, choose, write and refuse.

    tune_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import json
import math
import os
import pathlib
import re
import shlex
import statistics
import tomllib
import unittest

import numpy as np
from PIL import Image

import long_tests
import sluice_cli as cli
import tuning_case

BATCH = 48


def slow_and_exact(node, factor):
    """What a profile says of layers, with all seconds multiplied, no error, and a core for each device."""
    exact = {"error": 0, "slowdown": 1}
    if isinstance(node, list):
        return [slow_and_exact(one, factor) for one in node]
    if not isinstance(node, dict):
        return node
    return {key: exact[key] if key in exact else value * factor if key.endswith("_s") else slow_and_exact(value, factor)
            for key, value in node.items()}


class TuneTest(tuning_case.TuningCase):
    TABLES = {"device": {"list": "cpu", "threads": 1}, "model": {"name": "toy_cnn", "image_size": 16},
              "data": {"name": "shapes", "samples": 480}, "train": {"steps": 40, "global_batch": BATCH, "lr": 0.05,
                                                                    "lr_schedule": "onecycle", "warmup_steps": 9},
              "pipeline": {"stages": 2, "chunks": 2}, "replicas": {}, "profile": {"steps": 2}}

    def tune(self, *words, config=None):
        done = cli.must_run("tune", config or self.config, "--out", self.out, "--json", *words)
        return json.loads(done.stdout)

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

    def test_batch_norm_normalises_16_samples_or_as_many_as_now(self):
        config, profile = self.configuration("normalised", model={"name": "resnet8"}), self.folder / "normalised.json"
        cli.must_run("profile", config, "--out", profile)
        cases = ((4, 12), (1, 16), (2, 16))
        for chunks, least in long_tests.some(cases[:1], cases, "each tunes"):
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
                            words=("--out", self.out, "--budget", 1))

    def test_a_prediction_holds_together_and_is_the_tuners(self):
        profile = self.profile()
        best = self.tune("--profile", profile, "--verify", 0)["best"][0]
        said = json.loads(cli.must_run("simulate", self.out, "--profile", profile, "--json").stdout)
        self.assertAlmostEqual(said["step_s"], best["step_s"], delta=1e-12)
        self.assertEqual(said["plan"]["partition"], best["plan"]["partition"])
        self.assertEqual([device["bytes"] for device in said["devices"]], best["device_bytes"])
        for device in said["devices"]:
            parts = sum(device[part] for part in ("compute_s", "bubble_s", "allreduce_exposed_s", "optimizer_s", "load_s", "other_s"))
            self.assertAlmostEqual(parts, said["step_s"], delta=1e-9)

    def test_what_a_prediction_of_a_worker_leaves_out_is_said(self):
        profile = self.profile()
        server = ("--set", "replicas.sync=ps", "--set", "ps.workers=2")
        for words, parts in (((), ("a worker", "pushes", "pulls", "waiting", "measure again")),
                             (("--nodes", 1, "--devices", 2), ("cluster's replicas", "leaves out the parameter server"))):
            done = cli.must_run("simulate", self.config, "--profile", profile, "--json", *server, *words)
            said = json.loads(done.stdout)["left_out"]
            (warning,) = [line for line in done.stderr.splitlines() if "warning" in line]
            self.assertIn(said, warning)
            for part in parts:
                self.assertIn(part, said)
            alone = cli.must_run("simulate", self.config, "--profile", profile, "--json", *words)
            self.assertNotIn("left_out", json.loads(alone.stdout))
            self.assertNotIn("warning", alone.stderr)

    def test_a_slower_layer_and_a_slower_link_move_the_prediction_by_as_much(self):
        profile = json.loads(self.profile().read_text(encoding="utf-8"))
        profile["contenders"] = 1

        def predicted(change):
            changed = json.loads(json.dumps(profile))
            change(changed)
            file = self.folder / "changed.json"
            file.write_text(json.dumps(changed), encoding="utf-8")
            sets = ("--set", "pipeline.partition=[1,3]", "--set", "pipeline.chunks=1", "--set", "pipeline.schedule=gpipe")
            return json.loads(cli.must_run("simulate", self.config, "--profile", file, *sets, "--json").stdout)["step_s"]

        def slow_layer(changed):
            for times in changed["layers"][1]["times"]:
                for part in ("forward_s", "backward_s"):
                    times[part] *= 1.3

        def slow_link(changed):
            changed["stage_links"][0]["latency_s"] += 0.25

        def at_batch(part):
            times = {one["samples"]: one for one in profile["layers"][1]["times"]}
            return times[BATCH][part]

        self.assertEqual(len(profile["layers"]), 4)
        profile["load"] = None
        before, scale = predicted(lambda changed: None), profile["step"]["compute_s"] / profile["step"]["predicted_compute_s"]
        if BATCH in {one["samples"] for one in profile["layers"][1]["times"]}:
            self.assertAlmostEqual(predicted(slow_layer) - before,
                                   0.3 * scale * (at_batch("forward_s") + at_batch("backward_s")), delta=1e-9)
        self.assertGreater(predicted(slow_layer), before)
        self.assertAlmostEqual(predicted(slow_link) - before, 2 * 0.25, delta=1e-9)

    def slow_pictures(self):
        """Pictures that take tens of times as long to decode as a step of a small model takes to compute."""
        folder = self.folder / "pictures"
        pixels = np.random.default_rng(1).integers(0, 256, (400, 400, 3), dtype=np.uint8)
        for split, count in (("train", 2 * BATCH), ("val", 2)):
            for label in ("a", "b"):
                of_class = folder / split / label
                of_class.mkdir(parents=True)
                Image.fromarray(pixels).save(of_class / "0.png", compress_level=1)
                for i in range(1, count // 2):
                    os.link(of_class / "0.png", of_class / f"{i}.png")
        return str(folder)

    @long_tests.only("tests/train/slow_loader_test.cpp has it in CI")
    def test_a_slow_loader_makes_the_step_as_long_as_it_takes(self):
        slow = self.configuration("slow", model={"name": "mlp", "image_size": 8},
                                  data={"name": "image_folder", "path": self.slow_pictures(), "workers": 1},
                                  train={"steps": 20, "warmup_steps": 0, "eval_limit": 1, "eval_every_steps": 1000},
                                  pipeline={"stages": 1, "chunks": 1})
        profile = self.folder / "slow.json"
        cli.must_run("profile", slow, "--out", profile)
        said = json.loads(cli.must_run("simulate", slow, "--profile", profile, "--json").stdout)
        quick = json.loads(cli.must_run("simulate", slow, "--profile", profile, "--json",
                                        "--set", "data.workers=256").stdout)
        cli.must_run("train", slow, "--run-dir", self.folder / "run")
        lines = (self.folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        steps = [record for record in map(json.loads, lines) if record["event"] == "step"][8:]  # after what was made ahead
        measured = statistics.median(step["step_ms"] for step in steps) / 1e3
        self.assertGreater(said["load_s"], 0.8 * said["step_s"], "the loader decides")
        self.assertLess(quick["load_s"], 0.9 * said["load_s"], "more workers load on more cores")
        # Loading is timed before the run and in it, beside whatever else the machine does. Without it a step is a tenth.
        self.assertLess(abs(math.log(said["step_s"] / measured)), math.log(4))

    def test_a_run_says_what_it_was_predicted_to_take(self):
        cache = self.folder / "cache"
        known = self.configuration("known", pipeline={"cost_cache": str(cache)})
        sets = ("--set", "train.steps=12", "--set", "train.warmup_steps=0")
        summary = json.loads(cli.must_run("train", known, "--set", "pipeline.partition=[2,2]", *sets, "--run-dir", self.folder / "first",
                                          "--json").stdout)
        step_ms, summary = summary["step_ms_of_last_plan"], summary["predicted"]
        self.assertNotIn("step_ms", summary, "nothing was measured")
        self.assertAlmostEqual(summary["stages_error"], summary["by_stages_ms"] / step_ms - 1, delta=1e-9)
        cli.kept_profile(known, "--out", self.folder / "known.json")
        done = cli.must_run("train", known, *sets, "--run-dir", self.folder / "second", "--json")
        summary = json.loads(done.stdout)
        predicted = summary["predicted"]
        self.assertEqual(predicted["by"], "profile")
        plan = json.loads(cli.must_run("simulate", known, "--profile", self.folder / "known.json", "--json",
                                       "--set", "train.steps=12", "--set", "train.warmup_steps=0").stdout)
        self.assertAlmostEqual(predicted["step_ms"], plan["step_s"] * 1e3, delta=1e-6)
        self.assertAlmostEqual(predicted["error"], predicted["step_ms"] / summary["step_ms_of_last_plan"] - 1, delta=1e-9)
        self.assertEqual(list(predicted["device_bytes"].values()), [device["bytes"] for device in plan["devices"]])
        peaks = predicted["measured_device_bytes"]
        errors = [size / peaks[name] - 1 for name, size in predicted["device_bytes"].items()]
        self.assertAlmostEqual(predicted["memory_error"], max(errors, key=abs), delta=1e-9)
        kept = "|".join(re.escape(str(file)) for file in cache.glob("toy_cnn-*.json"))
        self.assertRegex(done.stderr, rf"predicted from the profile in ({kept}) \(measured [^)]* ago: slow-down [^)]*\): ")

    def test_replicas_in_one_memory_share_weights_and_their_state_in_what_is_predicted(self):
        known = self.configuration("known", pipeline={"cost_cache": str(self.folder / "cache")})
        sets = ("--set", "replicas.local=2", "--set", "train.steps=12", "--set", "train.warmup_steps=0")
        cli.kept_profile(known, "--set", "replicas.local=2", "--out", self.folder / "known.json")
        summary = json.loads(cli.must_run("train", known, *sets, "--run-dir", self.folder / "run", "--json").stdout)
        predicted, held = summary["predicted"]["device_bytes"], summary["peak_memory_by_kind"]
        self.assertEqual(sorted(held), ["cpu:0", "cpu:1", "cpu:2", "cpu:3"])
        for first, further in (("cpu:0", "cpu:2"), ("cpu:1", "cpu:3")):
            self.assertEqual((held[further]["parameters"], held[further]["optimizer"]), (0, 0))
            shared = held[first]["parameters"] + held[first]["optimizer"]
            self.assertGreater(shared, 0)
            self.assertAlmostEqual(predicted[first] - predicted[further], shared, delta=0.02 * shared)
        of_device = summary["predicted"]["memory_error_device"]
        self.assertAlmostEqual(summary["predicted"]["memory_error"],
                               predicted[of_device] / summary["predicted"]["measured_device_bytes"][of_device] - 1, delta=1e-9)

    @long_tests.only("it measures once more and trains twice")
    def test_the_memory_that_a_run_compares_is_that_of_its_steps_not_of_an_evaluation(self):
        known = self.configuration("known", pipeline={"cost_cache": str(self.folder / "cache")})
        cli.kept_profile(known, "--out", self.folder / "known.json")
        sets = ("--set", "train.steps=12", "--set", "train.warmup_steps=0", "--set", "data.samples=2000")

        def run(name, *more):
            return json.loads(cli.must_run("train", known, *sets, *more, "--run-dir", self.folder / name, "--json").stdout)

        small = run("small", "--set", "train.eval_batch=1")
        large = run("large", "--set", "train.eval_batch=2000")
        self.assertGreater(large["peak_memory_bytes"]["cpu:0"], 2 * small["peak_memory_bytes"]["cpu:0"])
        self.assertEqual(small["predicted"]["measured_device_bytes"]["cpu:0"], small["peak_memory_bytes"]["cpu:0"])
        for name, bytes_held in small["predicted"]["measured_device_bytes"].items():
            # A neighbour gives back what it was lent sooner or later.
            self.assertLess(abs(large["predicted"]["measured_device_bytes"][name] / bytes_held - 1), 0.3)

    def cluster(self, profile, *words):
        return json.loads(cli.must_run("simulate", self.config, "--profile", profile, "--json", *words).stdout)

    def test_a_cluster_scales_as_its_links_and_its_noise_let_it(self):
        profile = self.profile()
        alone = self.cluster(profile, "--nodes", 1, "--devices", 2)["scaling"]
        self.assertEqual([(row["devices"], row["replicas"]) for row in alone], [(2, 1)])
        free = self.cluster(profile, "--nodes", 1250, "--devices", 8)["scaling"]
        self.assertEqual(free[-1]["devices"], 10_000)
        self.assertEqual([row["replicas"] for row in free[:-1]], [2**i for i in range(13)])
        for row in free:
            self.assertAlmostEqual(row["step_s"], alone[0]["step_s"], delta=1e-9, msg="endless links cost nothing")
            self.assertEqual(row["samples"], BATCH * row["replicas"])
        for local in long_tests.some((2,), (1, 2), "one replica"):  # devices of nodes have weights of their own
            one = self.cluster(profile, "--nodes", 1, "--devices", 2, "--set", "pipeline.stages=1",
                               "--set", f"replicas.local={local}")["scaling"][0]
            self.assertEqual(one["devices"], 1)
            self.assertAlmostEqual(one["efficiency"], 1, delta=1e-9)
        noisy = self.cluster(profile, "--nodes", 5, "--devices", 2, "--noise", 0.1)["scaling"]
        for row, deviations in zip(noisy, (0, 0.56419, 1.02938)):  # the mean of the largest of 1, 2, 4 standard normals
            self.assertAlmostEqual(row["stragglers_s"] / alone[0]["step_s"], 0.1 * deviations, delta=0.02 * deviations + 1e-9)
        slow = self.cluster(profile, "--nodes", 4, "--devices", 2, "--bandwidth", 0.001, "--latency", 50)["scaling"]
        self.assertGreater(slow[-1]["exposed_communication_s"], slow[0]["exposed_communication_s"])
        if not long_tests.RUN:
            return
        with_units = self.cluster(profile, "--nodes", 4, "--devices", 2, "--bandwidth", "8 Mbit/s", "--latency", "50us")
        self.assertEqual(with_units["scaling"], slow)
        strong = self.cluster(profile, "--nodes", 4, "--devices", 2, "--scaling", "strong")["scaling"]
        self.assertEqual({row["samples"] for row in strong}, {BATCH})

    def test_freezing_on_a_cluster_epoch_by_epoch(self):
        table = self.cluster(self.profile(), "--nodes", 2, "--devices", 8, "--bandwidth", 5, "--inside-bandwidth", 15,
                             "--set", "freeze.policy=linear", "--set", "train.epochs=4", "--set", "train.steps=0",
                             "--set", "train.warmup_steps=0", "--set", "pipeline.partition=auto")["elastic"]
        self.assertEqual(len({row["name"] for row in table}), 4)
        for row in table:
            self.assertEqual(len(row["epochs"]), 4)
            self.assertEqual(row["epochs"][0]["frozen_layers"], 0)
        speedups = [row["speedup"] for row in table]
        self.assertEqual(speedups[0], 1)
        self.assertGreater(max(speedups), 1)

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
