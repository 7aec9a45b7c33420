#!/usr/bin/env python3
"""`sluice tune` beside other programs that take the cores: it ends well, with a plan, within its budget.

    tune_busy_test.py [RUNS [BUDGET_S]]        SLUICE_BINARY names the binary; SLUICE_SHOW=1 prints each run
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import tomllib
import unittest

import sluice_cli as cli

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
BUDGET_S = float(sys.argv[2]) if len(sys.argv) > 2 else 60
SPINNERS = 4
START_S = 10  # of a process that has a sixth of a core until it has loaded LibTorch, and of its end


class TuneBusyTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for _ in range(SPINNERS):
            spinner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            self.addCleanup(spinner.wait)
            self.addCleanup(spinner.kill)

    def test_it_ends_well_within_its_budget(self):
        config = cli.write_config(self.folder / "busy.toml", device={"list": "cpu"}, model={"name": "resnet8", "image_size": 32},
                                  data={"name": "shapes", "samples": 2000}, train={"steps": 200, "global_batch": 64},
                                  pipeline={"stages": 2, "chunks": 4, "cost_cache": "off"})
        for number in range(RUNS):
            out = self.folder / f"tuned-{number}.toml"
            begin = time.monotonic()
            done = cli.run("tune", config, "--out", out, "--budget", BUDGET_S, "--json")
            seconds = time.monotonic() - begin
            self.assertEqual(done.returncode, 0, f"run {number}: {done.stderr}")
            result = json.loads(done.stdout)
            if os.environ.get("SLUICE_SHOW"):
                print(f"run {number}: {seconds:.1f} s, {result['budget_use']}, verified {len(result['verified'])}", flush=True)
            self.assertLess(result["seconds"], BUDGET_S, done.stderr)
            self.assertLess(seconds, BUDGET_S + START_S, done.stderr)
            plan = tomllib.loads(cli.must_run("config", "--all", out).stdout)["pipeline"]
            self.assertEqual(plan["partition"], result["chosen"]["plan"]["partition"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
