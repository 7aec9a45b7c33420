#!/usr/bin/env python3
"""sluice simulate CONFIG --profile: what it predicts, and what a run says of its own prediction.

    predict_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import json
import math
import os
import re
import statistics
import unittest

import numpy as np
from PIL import Image

import long_tests
import sluice_cli as cli
import tuning_case

BATCH = tuning_case.BATCH


class PredictTest(tuning_case.SmallTuningCase):
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

        frozen = ("--set", "freeze.policy=schedule", "--set", 'freeze.schedule=["1: 1"]', "--set", "data.samples=64")
        for cache, predictions in (("off", 2), ("memory", 1)):  # steps that fetch kept features take other times
            cli.must_run("train", known, *sets, *frozen, "--set", f"freeze.cache={cache}", "--run-dir", self.folder / cache)
            self.assertEqual(len(cli.events(self.folder / cache, "prediction")), predictions, cache)

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

    @long_tests.only("8 s")
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
        for local in (1, 2):  # devices of nodes have weights of their own
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


if __name__ == "__main__":
    unittest.main()
