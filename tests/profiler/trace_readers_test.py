#!/usr/bin/env python3
"""Our traces, read by HolisticTraceAnalysis: its figures are ours, where no time is rounded.

    trace_readers_test.py [unittest options]        TRACE_SAMPLE names the program that writes the traces
"""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import trace_rules


@unittest.skipUnless(importlib.util.find_spec("hta"), "HolisticTraceAnalysis is not installed (bootstrap.sh --check-tools)")
class HolisticTraceAnalysisTest(unittest.TestCase):
    def test_breakdown_and_overlap_of_two_ranks_are_ours(self):
        from hta.trace_analysis import TraceAnalysis

        for seed in range(5):
            with self.subTest(seed=seed), tempfile.TemporaryDirectory() as folder:
                done = subprocess.run([os.environ["TRACE_SAMPLE"], folder, str(seed)], check=True, capture_output=True, text=True)
                expected = json.loads(done.stdout)
                for rank in (0, 1):
                    trace_rules.check(trace_rules.read(pathlib.Path(folder) / f"trace.rank{rank}.json.gz"))
                with contextlib.redirect_stdout(io.StringIO()):
                    analysis = TraceAnalysis(trace_dir=folder)
                    breakdown = analysis.get_temporal_breakdown(visualize=False)
                    overlap = analysis.get_comm_comp_overlap(visualize=False)
                for rank, ours in enumerate(expected):
                    self.assertEqual(breakdown[breakdown["rank"] == rank].iloc[0]["compute_time(us)"], ours["computing_us"])
                    percent = overlap[overlap["rank"] == rank].iloc[0]["comp_comm_overlap_pctg"]
                    self.assertAlmostEqual(percent, 100 * ours["hidden_us"] / ours["sums_us"], delta=0.005 + 1e-9)


if __name__ == "__main__":
    unittest.main(verbosity=2)
