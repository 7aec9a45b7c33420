#!/usr/bin/env python3
"""`train --trace` and `profile --trace`: what the files hold, beside the run's own records and other people's readers.

    trace_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import contextlib
import ctypes
import importlib.util
import io
import json
import os
import pathlib
import shutil
import tempfile
import unittest

import sluice_cli as cli
import trace_rules
from ports import free_port

STEPS, CHUNKS = 8, 3
PLANTED_NS = 50_000_000
NEW_TIME = 0x80  # CLONE_NEWTIME: a clock of one's own (man 7 time_namespaces)


def configuration(folder, **more):
    tables = {"device": {"list": "cpu", "threads": 1}, "model": {"name": "mlp", "image_size": 8},
              "data": {"name": "shapes", "samples": 64}, "train": {"steps": STEPS, "global_batch": 16, "lr": 0.05}}
    return cli.write_config(folder / "run.toml", **(tables | more))


def clock_ahead():
    """Of a process that is about to be: its monotonic clock goes ahead by PLANTED_NS. OSError where that may not be."""
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_TIME) != 0:
        raise OSError(ctypes.get_errno(), "no time namespace")
    pathlib.Path("/proc/self/timens_offsets").write_text(f"monotonic 0 {PLANTED_NS}\n")


def may_change_clocks():
    try:
        done = cli.run("version", preexec_fn=clock_ahead)
    except Exception:  # what subprocess makes of any error before the start
        return False
    return done.returncode == 0


class TraceTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.run_dir = self.folder / "run"

    def refused(self, *arguments, code=2):
        done = cli.run(*arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        return cli.error_of(done)

    def test_a_pipeline_has_a_row_a_stage_and_arrows_between_them(self):
        config = configuration(self.folder, pipeline={"stages": 2, "chunks": CHUNKS, "schedule": "1f1b"})
        done = cli.must_run("train", config, "--run-dir", self.run_dir, "--trace", "4..6")
        self.assertIn("trace of 3 steps written to", done.stderr)
        trace = trace_rules.read(self.run_dir / "trace.rank0.json.gz")
        trace_rules.check(trace)
        recorded = {line["step"]: line for line in cli.events(self.run_dir, "step")}
        for step in (4, 5, 6):
            (mark,) = [bar for bar in trace_rules.bars(trace) if bar["name"] == f"ProfilerStep#{step}"]
            self.assertAlmostEqual(mark["dur"] / 1e3, recorded[step]["step_ms"], places=3)
            for phase in ("forward", "backward"):
                total = 0
                for stage in (0, 1):
                    work = trace_rules.bars(trace, step=step, stage=stage, phase=phase)
                    if phase == "forward":
                        self.assertEqual(sorted(bar["args"]["micro_batch"] for bar in work), list(range(CHUNKS)))
                    if phase == "forward":
                        work += trace_rules.bars(trace, step=step, stage=stage, phase="loss")
                    total += trace_rules.time_of_union(work)
                self.assertAlmostEqual(total / 2 / 1e3, recorded[step][f"{phase}_ms"], delta=0.001)
        self.assertEqual(trace_rules.bars(trace, step=7), [])
        self.assertEqual(len(trace_rules.arrows(trace)), 3 * 2 * CHUNKS)
        counters = {event["name"] for event in trace["traceEvents"] if event["ph"] == "C"}
        self.assertLessEqual({"samples/s of the run", "memory MB of cpu:0", "memory MB of cpu:1"}, counters)

    def two_processes(self, **popen_of_1):
        config = configuration(self.folder, pipeline={"chunks": 2}, replicas={"bucket_mb": 0.01})
        port = free_port()
        processes = [cli.start("train", config, "--trace", "3..5", *(["--run-dir", self.run_dir] if rank == 0 else []),
                               env=cli.environment_of(rank, 2, port), **(popen_of_1 if rank == 1 else {}))
                     for rank in (0, 1)]
        for done in cli.finish_all(processes):
            self.assertEqual(done.returncode, 0, done.stderr)
        traces = [trace_rules.read(self.run_dir / f"trace.rank{rank}.json.gz") for rank in (0, 1)]
        for trace in traces:
            trace_rules.check(trace)
        return traces

    def assert_nobody_ends_a_sum_before_all_began(self, traces):
        """A sum's bars in all processes, by one clock: the last begin comes before the first end."""
        error_us = traces[1]["sluice"]["clock"]["error_ns"] / 1e3
        sums = [{(bar["args"]["step"], bar["args"]["stage"], bar["args"]["bucket"]): bar
                 for bar in trace_rules.bars(trace, phase="all_reduce") if "bucket" in bar["args"]} for trace in traces]
        self.assertEqual(sums[0].keys(), sums[1].keys())
        self.assertGreater(len(sums[0]), 3)
        for key in sums[0]:
            for one, other in ((0, 1), (1, 0)):
                self.assertLessEqual(sums[one][key]["ts"], trace_rules.end(sums[other][key]) + error_us, key)

    @unittest.skipUnless(may_change_clocks(), "this machine lets nobody have a clock of one's own (time namespaces)")
    def test_the_clocks_of_two_processes_are_aligned(self):
        traces = self.two_processes(preexec_fn=clock_ahead)
        clock = traces[1]["sluice"]["clock"]
        self.assertLessEqual(abs(clock["offset_ns"] - PLANTED_NS), clock["error_ns"])
        self.assertLess(clock["error_ns"], PLANTED_NS / 5)
        self.assertEqual(traces[0]["sluice"]["clock"], {"offset_ns": 0, "error_ns": 0})
        self.assertEqual(traces[0]["baseTimeNanoseconds"], traces[1]["baseTimeNanoseconds"])
        self.assert_nobody_ends_a_sum_before_all_began(traces)

    def test_rank_0_says_which_steps_are_traced(self):
        config = configuration(self.folder)
        port = free_port()
        processes = [cli.start("train", config, *arguments, env=cli.environment_of(rank, 2, port))
                     for rank, arguments in enumerate((["--run-dir", self.run_dir, "--trace", "3..4"], ["--trace", "6"]))]
        for done in cli.finish_all(processes):
            self.assertEqual(done.returncode, 0, done.stderr)
        for rank in (0, 1):
            trace = trace_rules.read(self.run_dir / f"trace.rank{rank}.json.gz")
            self.assertEqual({bar["args"]["step"] for bar in trace_rules.bars(trace, phase="forward")}, {3, 4})

    def test_every_process_has_a_file_and_its_times_in_the_records(self):
        self.assert_nobody_ends_a_sum_before_all_began(self.two_processes())
        (line,) = cli.events(self.run_dir, "ranks")
        self.assertEqual([rank["rank"] for rank in line["ranks"]], [0, 1])
        summary = cli.events(self.run_dir, "summary")[0]
        self.assertEqual(line["ranks"][0]["places"], summary["breakdown"])
        (other,) = line["ranks"][1]["places"]
        self.assertEqual(other["steps"], STEPS)
        parts = ("load_ms", "forward_ms", "backward_ms", "transfer_ms", "allreduce_exposed_ms", "optimizer_ms", "idle_ms")
        self.assertAlmostEqual(sum(other[part] for part in parts), other["step_ms"], places=6)

    def test_a_worker_of_a_server_traces_its_own_steps(self):
        ps = {"policy": "bsp", "worker_batch": 8}
        config = configuration(self.folder, replicas={"sync": "ps"}, ps=ps,
                               train={"steps": STEPS, "lr": 0.05})
        port = free_port()
        own = self.folder / "own"
        arguments = {0: ["--run-dir", self.run_dir], 1: ["--run-dir", own, "--trace", "2..4"], 2: []}
        processes = [cli.start("train", config, *arguments[rank], env=cli.environment_of(rank, 3, port)) for rank in range(3)]
        for done in cli.finish_all(processes):
            self.assertEqual(done.returncode, 0, done.stderr)
        trace = trace_rules.read(own / "trace.worker0.json.gz")
        trace_rules.check(trace)
        self.assertEqual({bar["args"]["step"] for bar in trace_rules.bars(trace, phase="forward")}, {2, 3, 4})

    def test_profile_traces_the_steps_that_it_times(self):
        config = configuration(self.folder, profile={"steps": 4})
        file = self.folder / "steps.json.gz"
        cli.must_run("profile", config, "--out", self.folder / "profile.json", "--trace", file)
        trace = trace_rules.read(file)
        trace_rules.check(trace)
        marks = [bar for bar in trace_rules.bars(trace) if bar["name"].startswith("ProfilerStep#")]
        self.assertEqual(len(marks), 4)

    def test_what_cannot_be_traced_is_said_before_anything_begins(self):
        config = configuration(self.folder)
        for words in ("0..3", "5..4", "many", "3..", "..3", "1..5000", "-3", "3..4..5"):
            with self.subTest(words):
                self.assertIn("--trace", self.refused("train", config, "--run-dir", self.run_dir, f"--trace={words}"))
        self.assertIn("profile.level", self.refused("train", config, "--run-dir", self.run_dir, "--trace", "3", "--set",
                                                    "profile.level=off"))
        self.assertIn(".json", self.refused("profile", config, "--trace", self.folder / "trace.txt"))
        self.assertFalse(self.run_dir.exists())

    def test_steps_that_the_run_does_not_reach(self):
        config = configuration(self.folder)
        done = cli.must_run("train", config, "--run-dir", self.run_dir, "--trace", "7..20")
        self.assertIn("trace of 2 steps", done.stderr)
        trace_rules.check(trace_rules.read(self.run_dir / "trace.rank0.json.gz"))
        done = cli.must_run("train", config, "--run-dir", self.folder / "other", "--trace", "20")
        self.assertIn("--trace: no step from 20 to 20 was made", done.stderr)
        self.assertEqual(list((self.folder / "other").glob("trace*")), [])

    @unittest.skipUnless(importlib.util.find_spec("hta"), "HolisticTraceAnalysis is not installed (bootstrap.sh --check-tools)")
    def test_holistic_trace_analysis_reads_what_we_wrote(self):
        from hta.trace_analysis import TraceAnalysis

        traces = self.two_processes()
        folder = self.folder / "traces"
        folder.mkdir()
        for rank in (0, 1):
            shutil.copy(self.run_dir / f"trace.rank{rank}.json.gz", folder)
        with contextlib.redirect_stdout(io.StringIO()):
            analysis = TraceAnalysis(trace_dir=str(folder))
            breakdown = analysis.get_temporal_breakdown(visualize=False)
        self.assertEqual(sorted(breakdown["rank"]), [0, 1])
        for rank, trace in enumerate(traces):
            row = breakdown[breakdown["rank"] == rank].iloc[0]
            # It leaves the last step out, and rounds every event to microseconds.
            work = [bar for bar in trace_rules.bars(trace) if bar["args"].get("step") in (3, 4) and "stream" in bar["args"]]
            computing = [bar for bar in work if bar["cat"] == "kernel" and not bar["name"].startswith("nccl")]
            self.assertAlmostEqual(row["compute_time(us)"], trace_rules.time_of_union(computing), delta=2 * len(computing))
            window = max(map(trace_rules.end, work)) - min(bar["ts"] for bar in work)
            self.assertAlmostEqual(row["kernel_time(us)"], window, delta=4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
