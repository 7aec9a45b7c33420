#!/usr/bin/env python3
"""scripts/experiment.py with the real program: one device, replicas and processes train the same thing."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts" / "experiment.py"
TINY = ["--model", "resnet8", "--batch", "16", "--steps", "2", "--warmup", "1", "--rounds", "2"]


class ExperimentTest(unittest.TestCase):
    def test_all_ways_are_measured(self):
        command = [sys.executable, str(SCRIPT), "single_dp_ddp", *TINY, "--json", "--sluice", os.environ["SLUICE_BINARY"]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)["rows"]
        self.assertEqual([row["way"] for row in rows], ["single", "dp", "ddp"])
        self.assertTrue(all(row["step_s"] > 0 and row["images_per_s"] > 0 for row in rows))


if __name__ == "__main__":
    unittest.main()
