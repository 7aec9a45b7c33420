#!/usr/bin/env python3
"""What a parameter server costs: measured by sluice profile, predicted by sluice simulate and by a run, whose summary has
what came of it. Nothing here depends on how fast anything is. Exits 77 without safetensors.

    server_prediction_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import json
import pathlib
import tempfile
import unittest

import long_tests
import sluice_cli as cli
from server_runs import BATCH, ServerRuns, configuration

WORKERS = 2
ONE_THREAD = ("--set", "device.threads=1", "--set", "pipeline.stages=1", "--set", "profile.steps=2")


def seconds(link, size):
    """Without bytes_per_s the time does not depend on the size; noise can make small weights look so."""
    return link["latency_s"] + (size / link["bytes_per_s"] if link.get("bytes_per_s") else 0)


class ServerPredictionTest(ServerRuns):
    measured = None  # the profile, for all tests

    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.profile = folder / "profile.json"
        cls.cache = ("--set", f"pipeline.cost_cache={folder / 'costs'}")

    def configuration(self, policy):
        return configuration(self.folder, {"policy": policy, "workers": WORKERS}, train={"precision": "fp32"})

    def measure(self, config):
        if self.measured is None:
            type(self).measured = cli.kept_profile(config, *ONE_THREAD, *self.cache, "--out", self.profile, "--json").stdout
        return json.loads(self.measured)

    def simulate(self, config, *words):
        done = cli.must_run("simulate", config, "--profile", self.profile, *ONE_THREAD, *words, "--json")
        return json.loads(done.stdout)

    @long_tests.only("20 s")
    def test_a_prediction_is_the_sum_of_what_was_measured(self):
        config = self.configuration("asp")
        profile = self.measure(config)
        server = profile["server"]
        weights = sum(layer["gradient_bytes"] for layer in profile["layers"])
        for way in ("push", "pull"):
            self.assertGreaterEqual(server[way]["latency_s"], 0)
            self.assertGreater(seconds(server[way], weights), 0)
        self.assertGreater(server["update"]["a_s"] + weights * server["update"]["b_s"], 0)
        self.assertEqual((server["push_compression"], server["pull_compression"]), ("none", "none"))

        one = self.simulate(config, "--set", "ps.workers=1")
        self.assertNotIn("left_out", one)
        (device,) = one["devices"]
        parts = sum(device[part] for part in ("compute_s", "bubble_s", "allreduce_exposed_s", "optimizer_s", "load_s", "other_s"))
        self.assertAlmostEqual(parts, one["step_s"], delta=1e-9)
        self.assertAlmostEqual(one["samples_per_s"] * one["step_s"], BATCH, delta=1e-6)
        self.assertEqual(one["server"]["network_bytes"], 2 * weights)
        self.assertAlmostEqual(one["server"]["pull_s"], seconds(server["pull"], weights), delta=1e-9)
        self.assertAlmostEqual(one["server"]["update_s"], server["update"]["a_s"] + weights * server["update"]["b_s"], delta=1e-9)
        self.assertGreaterEqual(one["server"]["push_exposed_s"], server["push"]["latency_s"])
        self.assertLessEqual(one["server"]["push_exposed_s"], seconds(server["push"], weights) + 1e-9)

        # Of many workers the server is what holds them up.
        many = self.simulate(config, "--set", "ps.workers=4096", "--set", "ps.keys=keys")
        on_the_way = [seconds(server[way], weights) - server[way]["latency_s"] for way in ("push", "pull")]
        busy = sum(on_the_way) + one["server"]["update_s"]
        self.assertAlmostEqual(many["step_s"], 4096 * busy, delta=1e-6 * many["step_s"])
        text = cli.must_run("simulate", config, "--profile", self.profile, *ONE_THREAD).stdout
        self.assertIn("parameter server, per worker's step: exposed push", text)

    def test_a_run_says_what_it_was_predicted_and_how_far_off_that_was(self):
        config = self.configuration("asp")
        self.measure(config)
        predicted = self.simulate(config)["step_s"]
        done = self.finish_well(self.start_all(config, 1 + WORKERS, *ONE_THREAD, *self.cache))
        self.assertRegex(done[0].stderr, r"predicted from the profile in \S+ \(measured [^)]* ago: [^)]*\): [0-9.]+ ms an update, [0-9.]+ samples/s")
        (said,) = cli.events(self.folder / "run", "prediction")
        self.assertAlmostEqual(said["step_ms"], predicted / WORKERS * 1e3, delta=1e-6, msg="an update by each push")
        (summary,) = cli.events(self.folder / "run", "summary")
        of_run = summary["predicted"]
        self.assertEqual((of_run["by"], of_run["step_ms"]), ("profile", said["step_ms"]))
        self.assertAlmostEqual(of_run["error"], of_run["step_ms"] / summary["step_ms_of_last_plan"] - 1, delta=1e-9)


if __name__ == "__main__":
    unittest.main(verbosity=2)
