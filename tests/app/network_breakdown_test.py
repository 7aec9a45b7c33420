#!/usr/bin/env python3
"""A slow network shows as exposed all-reduce, and what backward can hide of it is hidden.

Two hosts of one thread each (network namespaces), ResNet-18, 44.7 MB of gradients a step, at three rates. Long, because
it measures time; the figures go into docs/results/performance.md.

    network_breakdown_test.py [unittest options]      SLUICE_BINARY names the binary; needs root, ip, tc and two cores
"""

import pathlib
import statistics
import sys
import tempfile
import unittest

import hosts
import sluice_cli as cli

STEPS = 7
SAMPLES = 96  # of a process
RATES = {"100mbit": 100e6, "1gbit": 1e9, "10gbit": 10e9}
FAST = "10gbit"


class NetworkBreakdownTest(unittest.TestCase):
    def measure(self, rate):
        """Medians over the steps after the first two, milliseconds."""
        with tempfile.TemporaryDirectory() as name, hosts.Hosts(rate) as pair:
            folder = pathlib.Path(name)
            config = cli.write_config(
                folder / "run.toml", device={"list": "cpu", "threads": 1}, model={"name": "resnet18"},
                data={"name": "shapes", "samples": 2000}, train={"steps": STEPS, "global_batch": 2 * SAMPLES},
                replicas={"bucket_mb": 4, "connect_timeout_s": 60})
            run_dir = folder / "run"
            done = cli.finish_all([pair.start(i, "train", config, "--run-dir", run_dir if i == 0 else folder / "none",
                                              cwd=folder) for i in range(2)])
            self.assertEqual([process.returncode for process in done], [0, 0], [process.stderr for process in done])
            steps = cli.events(run_dir, "step")[2:]
            for step in steps:
                parts = sum(step[f"{part}_ms"] for part in ("load", "forward", "backward", "transfer",
                                                            "allreduce_exposed", "optimizer", "idle"))
                self.assertAlmostEqual(parts, step["step_ms"], delta=1e-3 * step["step_ms"])
            figures = {key: statistics.median(step[key] for step in steps)
                       for key in ("step_ms", "forward_ms", "backward_ms", "allreduce_ms", "allreduce_exposed_ms",
                                   "skew_ms", "net_bytes_per_s", "sync_bytes")}
            print(rate, {key: round(value, 1) for key, value in figures.items()}, flush=True)
            return figures

    def test_exposed_allreduce_is_what_the_network_costs(self):
        at = {rate: self.measure(rate) for rate in RATES}
        slow, fast = at["100mbit"], at[FAST]
        on_the_wire_ms = slow["sync_bytes"] * 8 / RATES["100mbit"] * 1000  # of two ranks each sends all of it once
        # The buckets go one after the other from the first that is ready; headers take a few percent of the rate.
        self.assertGreater(slow["allreduce_ms"], on_the_wire_ms)
        self.assertLess(slow["allreduce_ms"], 1.15 * on_the_wire_ms + slow["skew_ms"])
        # The whole cost of the network, measured by the wall clock of whole steps, is found as exposed all-reduce ...
        cost = slow["step_ms"] - fast["step_ms"]
        found = slow["allreduce_exposed_ms"] - fast["allreduce_exposed_ms"]
        self.assertAlmostEqual(found, cost, delta=0.15 * slow["allreduce_ms"])
        # ... and is what backward could not hide: the first bucket is ready when the last layers are done.
        transfer = slow["allreduce_exposed_ms"] - slow["skew_ms"]
        self.assertLessEqual(transfer, max(0, slow["allreduce_ms"] - slow["backward_ms"]) + 0.15 * slow["allreduce_ms"])


if __name__ == "__main__":
    if reason := hosts.missing():
        print(f"skipped: {reason}")
        sys.exit(hosts.SKIPPED)
    unittest.main(verbosity=2)
