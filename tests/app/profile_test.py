#!/usr/bin/env python3
"""`sluice profile` from outside: what it prints and writes, and what it refuses. Nothing here depends on how fast it is.

    profile_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import json
import math
import os
import pathlib
import re
import tempfile
import unittest

import long_tests
import sluice_cli as cli

DOCUMENTATION = pathlib.Path(__file__).resolve().parents[2] / "docs" / "reference" / "profile_file.md"


def two_chunks_on_two_devices(stages, profile, samples):
    """Seconds of a step of 1F1B: device 0 runs F0 F1 B0 B1, device 1 runs F0 B0 F1 B1; then the update."""
    def seconds(stage, part):
        return sum(times[f"{part}_s"] for layer in stage for times in layer["times"] if times["samples"] == samples)

    hop = profile["stage_links"][0]["latency_s"]
    forward = [seconds(stage, "forward") for stage in stages]
    backward = [seconds(stage, "backward") for stage in stages]
    second_ready = 2 * forward[0] + hop
    first_back = forward[0] + hop + forward[1] + backward[1]
    second_back = max(first_back, second_ready) + forward[1] + backward[1]
    first_end = max(2 * forward[0], first_back + hop) + backward[0]
    end = max(first_end, second_back + hop) + backward[0]
    weights = max(sum(layer["gradient_bytes"] for layer in stage) for stage in stages)
    return end + profile["update"]["a_s"] + weights * profile["update"]["b_s"]


class ProfileTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.out = self.folder / "p.json"
        self.config = self.configuration()

    def configuration(self, **changes):
        tables = {
            "device": {"list": "cpu", "threads": 1},
            "model": {"name": "mlp", "image_size": 8},
            "data": {"name": "shapes", "samples": 80},
            "train": {"steps": 6, "global_batch": 16, "lr": 0.01, "optimizer": "momentum"},
            "pipeline": {"chunks": 2}, "replicas": {}, "profile": {"steps": 2}}
        for table, values in changes.items():
            tables[table] = {**tables[table], **values}
        return cli.write_config(self.folder / "small.toml", **tables)

    def profile(self, *arguments):
        return cli.must_run("profile", self.config, "--out", self.out, *arguments)

    def assert_refused(self, done, code, *parts):
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "")
        for part in parts:
            self.assertIn(str(part), cli.error_of(done))
        self.assertEqual([path.name for path in self.folder.iterdir()], ["small.toml"], "something was left behind")

    def test_with_a_budget_it_measures_less_and_what_it_has_is_a_profile(self):
        self.config = self.configuration(model={"name": "resnet8", "image_size": 32}, data={"name": "shapes", "samples": 512},
                                         train={"steps": 6, "global_batch": 256}, pipeline={"chunks": 2, "stages": 2})
        self.profile("--budget", "1")
        layers = json.loads(self.out.read_text(encoding="utf-8"))["layers"]
        for layer in layers:
            sizes = [times["samples"] for times in layer["times"]]
            self.assertGreaterEqual(len(sizes), 2)
            self.assertLess(len(sizes), 6, "16 to 256 samples without a budget")
        said = json.loads(cli.must_run("simulate", self.config, "--profile", self.out, "--json").stdout)
        self.assertGreater(said["step_s"], 0)

    @long_tests.only("advice and predictions are compared by unit tests, too")
    def test_advice_promises_what_a_simulation_of_both_plans_says(self):
        plan = ("--set", "pipeline.stages=2", "--set", "pipeline.partition=[1, 2]", "--set", "pipeline.chunks=16")
        text = self.profile(*plan).stdout

        def seconds(*words):
            done = cli.must_run("simulate", self.config, "--profile", self.out, *plan, *words, "--json")
            return json.loads(done.stdout)["step_s"]

        ((chunks, percent),) = re.findall(r"pipeline\.chunks = (\d+) predicts -([\d.]+) %", text)
        gain = 100 * (1 - seconds("--set", f"pipeline.chunks={chunks}") / seconds())
        self.assertAlmostEqual(float(percent), gain, delta=0.5 if gain >= 10 else 0.05, msg=text)

    def test_file_and_json_are_the_same_and_hold_together(self):
        done = self.profile("--json", "--set", "pipeline.stages=2", "--set", "pipeline.partition=[1, 2]")
        profile = json.loads(self.out.read_text(encoding="utf-8"))
        self.assertEqual(json.loads(done.stdout), profile)
        self.assertEqual(profile["schema_version"], 8)
        self.assertEqual(profile["micro_batch"], 8)
        self.assertEqual(len(profile["layers"]), 3)
        self.assertEqual(profile["fingerprint"]["model"], "mlp")
        self.assertEqual(profile["fingerprint"]["threads_per_device"], 1)
        for layer in profile["layers"]:
            sizes = [times["samples"] for times in layer["times"]]
            self.assertEqual(sizes[:4], [1, 2, 4, 8])
            self.assertIn(sizes[4:], ([], [16]), "up to a replica's whole batch, where there is time for it")
            self.assertEqual(layer["gradient_bytes"], layer["parameter_bytes"])
            self.assertEqual(layer["optimizer_bytes"], layer["parameter_bytes"], "momentum keeps one state")
        stages = [profile["layers"][:1], profile["layers"][1:]]
        alone = two_chunks_on_two_devices(stages, profile, 8)
        slowest = max(layer["slowdown"] for layer in profile["layers"])
        self.assertGreaterEqual(profile["step"]["predicted_s"], alone * (1 - 1e-12))
        self.assertLessEqual(profile["step"]["predicted_s"], alone * slowest * (1 + 1e-12))
        self.assertEqual(profile["contenders"], 2)
        computing = sum(times[f"{part}_s"] for layer in profile["layers"] for times in layer["times"] if times["samples"] == 8
                        for part in ("forward", "backward"))  # of two micro-batches, mean of two devices
        self.assertGreaterEqual(profile["step"]["predicted_compute_s"], computing * (1 - 1e-12))
        self.assertLessEqual(profile["step"]["predicted_compute_s"], computing * slowest * (1 + 1e-12) + 16 * profile["load"]["cpu_s"])
        self.assertGreaterEqual(min(layer["slowdown"] for layer in profile["layers"]), 1)
        self.assertEqual(profile["step"]["predicted_allreduce_s"], 0)
        self.assertGreater(profile["step"]["predicted_update_s"], 0)
        self.assertEqual(profile["step"]["steps"], 2)
        self.assertEqual([(link["from_device"], link["to_device"]) for link in profile["stage_links"]], [("cpu:0", "cpu:1")])
        self.assertIsNone(profile["stage_links"][0]["bytes_per_s"])
        self.assertEqual([link["local_replicas"] for link in profile["all_reduces"]], [2], "if each device had one")
        self.assertGreater(profile["load"]["sample_s"], 0)
        self.assertGreaterEqual(profile["load"]["sample_s"], 0.9 * profile["load"]["cpu_s"])
        self.assertGreater(profile["step"]["compute_s"], 0)
        self.assertLess(profile["step"]["compute_s"], profile["step"]["median_s"])
        for stage in profile["stage_memory"]:
            self.assertGreater(stage["live_bytes"], 0)
            self.assertEqual(stage["live_bytes"], stage["predicted_live_bytes"])
        for device in profile["device_memory"]:
            self.assertGreater(device["peak_bytes"], 0)
            self.assertGreater(device["predicted_peak_bytes"], 0)
        self.assertEqual([device["device"] for device in profile["device_memory"]], ["cpu:0", "cpu:1"])
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["p.json", "small.toml"])

    def test_what_devices_take_from_each_other_is_measured_of_those_that_have_cores(self):
        cores = len(os.sched_getaffinity(0))
        places = 2 * cores
        self.profile("--set", f"replicas.local={places}", "--set", f"train.global_batch={16 * places}", "--set", f"data.samples={80 * places}")
        profile = json.loads(self.out.read_text(encoding="utf-8"))
        self.assertEqual((profile["fingerprint"]["cores"], profile["contenders"]), (cores, cores))
        # All replicas compute all the time: twice as many as cores take twice as long as one at least.
        alone = 2 * sum(times[f"{part}_s"] for layer in profile["layers"] for times in layer["times"] if times["samples"] == profile["micro_batch"]
                        for part in ("forward", "backward"))
        self.assertGreaterEqual(profile["step"]["predicted_s"], 2 * alone * (1 - 1e-12))
        self.assertLessEqual(profile["step"]["predicted_compute_s"], profile["step"]["compute_s"])

    def test_every_field_is_documented_and_the_other_way_round(self):
        # A model that transforms weights, with a choice that is told where it is not the usual one.
        self.profile("--set", "model.name=resnet8", "--set", "train.winograd=4x4", "--set", "model.image_size=16", "--set", "replicas.local=2",
                     "--set", "pipeline.stages=2", "--set", "replicas.sync=ps", "--set", "ps.worker_batch=16", "--layers")
        names = set()

        def collect(value):
            if isinstance(value, dict):
                names.update(value)
                for inner in value.values():
                    collect(inner)
            elif isinstance(value, list):
                for inner in value:
                    collect(inner)

        collect(json.loads(self.out.read_text(encoding="utf-8")))
        of_gpus = {"gpu", "events_s", "host_s", "kernels_s", "launch_bound"}
        of_text = {"inputs", "usual_tokens", "task", "config", "file", "lora_rank", "lora_alpha", "lora_dropout", "lora_targets"}
        documented = set(re.findall(r"`([a-z_]+)`", DOCUMENTATION.read_text(encoding="utf-8"))) - {"avx", "baseline"} - of_gpus - of_text
        self.assertEqual(names - documented, set())
        self.assertEqual(documented - names, set())

    def test_prints_a_row_for_each_layer_and_the_links(self):
        done = self.profile("--set", "replicas.local=2", "--set", "pipeline.stages=2")
        profile = json.loads(self.out.read_text(encoding="utf-8"))
        for layer in profile["layers"]:
            self.assertEqual(len(re.findall(rf"^{re.escape(layer['name'])} ", done.stdout, re.MULTILINE)), 2, "times, bytes")
        for part in ("forward ms", "input ms", "weight ms", "a + b n", "stage 0 to 1", "all-reduce", "median of 2 steps"):
            self.assertIn(part, done.stdout)
        self.assertEqual([link["local_replicas"] for link in profile["all_reduces"]], [2])
        self.assertGreater(profile["step"]["predicted_allreduce_s"], 0)

    def test_the_same_machine_has_the_same_fingerprint(self):
        self.profile()
        first = json.loads(self.out.read_text(encoding="utf-8"))
        self.profile()
        second = json.loads(self.out.read_text(encoding="utf-8"))
        self.assertEqual(first["fingerprint_hash"], second["fingerprint_hash"])
        self.profile("--set", "train.precision=fp64")
        third = json.loads(self.out.read_text(encoding="utf-8"))
        self.assertNotEqual(first["fingerprint_hash"], third["fingerprint_hash"])
        self.assertEqual(third["layers"][0]["parameter_bytes"], 2 * first["layers"][0]["parameter_bytes"])

    @long_tests.only("one more profile")
    def test_the_short_last_step_of_an_epoch_does_not_count(self):
        # 3 steps warm up; of the other 2 the second has the last sample of the epoch alone.
        profile = json.loads(self.profile("--json", "--set", "data.samples=65").stdout)
        self.assertEqual(profile["step"]["steps"], 1)
        self.assertAlmostEqual(profile["step"]["samples_per_s"], 16 / profile["step"]["median_s"])

    @long_tests.only("one more profile")
    def test_what_is_predicted_stands_beside_the_step_without_its_load(self):
        done = self.profile("--json", "--set", "data.workers=0", "--set", "model.image_size=64")
        step = json.loads(done.stdout)["step"]
        self.assertLess(step["median_without_load_s"], step["median_s"])
        self.assertGreater(step["median_without_load_s"], 0)

    def test_computing_is_the_sum_of_the_layers_and_what_loading_takes_from_it(self):
        """On one device: two micro-batches of 8, beside four loading threads; what nothing explains of the step remains."""
        profile = json.loads(self.profile("--json", "--set", "data.workers=4").stdout)
        step, update, cores = profile["step"], profile["update"], profile["fingerprint"]["cores"]
        layers = sum(layer["first_forward_s"] + layer["first_backward_s"] for layer in profile["layers"])
        layers += 2 * sum(times["forward_s"] + times["backward_s"] for layer in profile["layers"]
                          for times in layer["times"] if times["samples"] == 8)
        loading = 16 * profile["load"]["cpu_s"] * max(0, 1 + 4 - cores) / (4 * cores)
        self.assertAlmostEqual(step["predicted_compute_s"], layers + loading, delta=1e-12)
        updating = update["a_s"] + update["b_s"] * sum(layer["gradient_bytes"] for layer in profile["layers"])
        self.assertAlmostEqual(step["predicted_s"], layers + updating, delta=1e-12)
        scaled = layers * step["compute_s"] / step["predicted_compute_s"] + updating
        self.assertAlmostEqual(step["other_s"], max(0, step["median_without_load_s"] - scaled), delta=1e-12)

    @long_tests.only("one more profile")
    def test_sums_are_measured_over_all_replicas_that_a_plan_may_have_here(self):
        profile = json.loads(self.profile("--json", "--set", "pipeline.stages=3").stdout)
        self.assertEqual([link["local_replicas"] for link in profile["all_reduces"]], [2, 3])

    @long_tests.only("tests/train chooses chunks in CI")
    def test_open_chunks_are_chosen_as_in_training(self):
        self.config.write_text(self.config.read_text().replace("chunks = 2", 'chunks = "auto"'), encoding="utf-8")
        done = self.profile("--json", "--set", "pipeline.stages=2")
        self.assertIn("is fastest", done.stderr)
        chunks = int(re.search(r"auto\": (\d+) is fastest", done.stderr).group(1))
        self.assertEqual(json.loads(done.stdout)["micro_batch"], 16 // chunks)

    def test_two_processes_measure_the_all_reduce_between_them(self):
        ranks = cli.finish_all(cli.start_ranks(2, "profile", self.config, "--out", self.out, "--json"))
        self.assertEqual([done.returncode for done in ranks], [0, 0], [done.stderr for done in ranks])
        profile = json.loads(ranks[0].stdout)
        self.assertEqual(ranks[1].stdout, "")
        (link,) = profile["all_reduces"]
        self.assertEqual((link["processes"], link["local_replicas"]), (2, 1))
        # Either part of the line may be zero where other programs disturb the measurement, but not both.
        self.assertGreater(link["latency_s"] + 4096 / (link.get("bytes_per_s") or math.inf), 0)
        self.assertEqual(profile["micro_batch"], 4)

    def test_what_cannot_be_written_is_said_before_measuring(self):
        missing = self.folder / "missing" / "p.json"
        done = cli.run("profile", self.config, "--out", missing)
        self.assert_refused(done, 8, missing)
        self.assertNotIn("measuring", done.stderr)
        self.assert_refused(cli.run("profile", self.config, "--out", self.folder), 8, self.folder)
        self.assert_refused(cli.run("profile", self.config, "--out", self.config), 2, "--out", self.config)

    def test_a_full_disk_is_8(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        self.assert_refused(cli.run("profile", self.config, "--out", "/dev/full"), 8, "/dev/full")

    def test_bad_configurations_are_2(self):
        bad = (("profile.steps=0", "profile.steps"), ("model.name=nonsense", "nonsense"), ("profile.step=3", "profile.step"),
               ("pipeline.stages=9", "pipeline.stages"))
        for key, part in long_tests.some(bad[:1], bad, "app_cli has more of them"):
            self.assert_refused(cli.run("profile", self.config, "--out", self.out, "--set", key), 2, part)
        self.assert_refused(cli.run("profile", self.folder / "none.toml", "--out", self.out), 2, "none.toml")
        self.assert_refused(cli.run("profile", self.config, "--out", ""), 2, "--out")

    def test_a_run_that_diverges_is_6(self):
        done = cli.run("profile", self.config, "--out", self.out, "--set", "train.lr=1e30")
        self.assert_refused(done, 6, "train.lr")


if __name__ == "__main__":
    unittest.main()
