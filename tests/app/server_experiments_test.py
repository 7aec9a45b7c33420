#!/usr/bin/env python3
"""scripts/experiment.py with the real programs: anytime mini-batches beside fixed ones in virtual time and as processes, and what
push, pull and all-reduce take."""

import csv
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import long_tests

BENCH = pathlib.Path(os.environ["SLUICE_BINARY"]).parent / "bench" / "bench_parameter_server"
SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts" / "experiment.py"
TINY = ["--seeds", "1", "--steps", "8", "--fmb-batch", "8", "--amb-batch", "16", "--partitions", "4", "--evaluations", "2", "--thresholds", "1",
        "--set", "data.samples=400", "--set", "data.workers=0"]


class ServerExperimentsTest(unittest.TestCase):
    def setUp(self):
        self.out = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "out"

    def table_of(self, *words):
        command = [sys.executable, str(SCRIPT), *words, "--out", str(self.out), "--sluice", os.environ["SLUICE_BINARY"], "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["rows"]

    def rows(self):
        with open(self.out / "results.csv", encoding="utf-8", newline="") as file:
            return {row["run"]: row for row in csv.DictReader(file)}

    def test_anytime_in_virtual_time(self):
        fmb, amb, threshold = self.table_of("anytime", *TINY, "--workers", "3", "--decay-rate", "0.9", "--decay-steps", "3")
        self.assertEqual((fmb["samples_min"], fmb["samples_max"]), (8, 8))
        # A whole batch takes 5.41 s; the limit of 6.2 s leaves no time for another slice that would begin after it.
        self.assertGreaterEqual(fmb["update_s"], 5.41)
        self.assertLessEqual(amb["samples_max"], 12)
        self.assertLess(amb["update_s"], 6.2 + 4 * 5.41 / 8)
        self.assertGreater(threshold["amb_s"], 0)
        figures = {"accuracy_time", "accuracy_step", "progress", "compute_time", "batch", "staleness"}
        for kind in ("png", "pdf"):
            drawn = {path.stem for path in self.out.glob(f"*.{kind}")}
            self.assertEqual(drawn, figures if importlib.util.find_spec("matplotlib") else set())

    @long_tests.only("10 s")
    def test_anytime_as_processes(self):
        amb, _ = self.table_of("anytime", *TINY, "--real", "--arms", "amb")
        self.assertGreater(amb["update_s"], 0)
        rows = self.rows()
        # The limit is to the time of a fixed batch as 6.2 s to 5.41 s.
        self.assertAlmostEqual(float(rows["amb-seed1"]["time_limit_s"]) / float(rows["calibration"]["compute_s"]), 6.2 / 5.41, 4)
        self.assertEqual(rows["amb-seed1"]["pushes"], "16")

    @unittest.skipUnless(BENCH.exists(), "needs bench_parameter_server")
    def test_push_pull_and_all_reduce(self):
        server, summed = self.table_of("communication", "--rounds", "1", "--sizes", "1", "--workers", "1", "--processes", "2", "--seconds", "0.1", "--steps", "3")
        self.assertGreater(server["ms"], 0)
        self.assertGreater(summed["ms"], 0)
        self.assertLess(abs(summed["bytes"] / 2**20 - 1), 0.05)


if __name__ == "__main__":
    unittest.main()
