#!/usr/bin/env python3
"""`train --trace` and `profile --trace`: what the files hold, beside the run's own records and other people's readers.

    trace_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import ctypes
import pathlib
import signal
import tempfile
import unittest

import long_tests
import sluice_cli as cli
import trace_rules

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
                    # What has a column of its own: the targets' copy in the last forward, local sums in a backward.
                    row = (work[0]["pid"], work[0]["tid"])
                    inner = trace_rules.bars(trace, step=step, stage=stage, phase="host_to_device")
                    inner += [bar for bar in trace_rules.bars(trace, step=step, phase="all_reduce")
                              if (bar["pid"], bar["tid"]) == row]
                    total += trace_rules.time_of_union(work + inner) - trace_rules.time_of_union(inner)
                self.assertAlmostEqual(total / 2 / 1e3, recorded[step][f"{phase}_ms"], delta=0.00001)
        self.assertEqual(trace_rules.bars(trace, step=7), [])
        self.assertEqual(len(trace_rules.arrows(trace)), 3 * 2 * CHUNKS)
        counters = {event["name"] for event in trace["traceEvents"] if event["ph"] == "C"}
        self.assertLessEqual({"samples/s of the run", "memory MB of cpu:0", "memory MB of cpu:1"}, counters)

    def two_processes(self, steps="3..5", **popen_of_1):
        config = configuration(self.folder, pipeline={"chunks": 2}, replicas={"bucket_mb": 0.01})
        port = cli.free_port()
        processes = [cli.start("train", config, "--trace", steps, *(["--run-dir", self.run_dir] if rank == 0 else []),
                               env=cli.rank_environment(rank, 2, port), **(popen_of_1 if rank == 1 else {}))
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
        sums = [trace_rules.sums(trace) for trace in traces]
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
        cases = (("both", ["--trace", "3..4"], ["--trace", "6"], True), ("second", [], ["--trace", "6"], False),
                 ("first", ["--trace", "3..4"], [], True))
        for name, of_0, of_1, traced in long_tests.some(cases[:1], cases, "one rank alone is told to trace"):
            with self.subTest(name):
                run_dir = self.folder / name
                processes = cli.start_ranks(2, "train", config, arguments_of={0: ["--run-dir", run_dir, *of_0], 1: of_1})
                done = cli.finish_all(processes)
                self.assertEqual([process.returncode for process in done], [0, 0], done[0].stderr + done[1].stderr)
                self.assertEqual("--trace is ignored on rank 1" in done[1].stderr, bool(of_1))
                names = [f"trace.rank{rank}.json.gz" for rank in (0, 1)] if traced else []
                self.assertEqual(sorted(file.name for file in run_dir.glob("trace*")), names)
                for file in names:
                    trace = trace_rules.read(run_dir / file)
                    self.assertEqual({bar["args"]["step"] for bar in trace_rules.bars(trace, phase="forward")}, {3, 4})

    def test_waits_for_sums_are_right_from_the_first_step_on(self):
        """Whatever the clocks: until the last process began, by the bars of both files."""
        traces = self.two_processes("1..2", **({"preexec_fn": clock_ahead} if may_change_clocks() else {}))
        sums = [trace_rules.sums(trace) for trace in traces]
        self.assertEqual(sums[0].keys(), sums[1].keys())
        self.assertEqual({step for step, _, _ in sums[0]}, {1, 2})
        for key in sums[0]:
            last = max(of_rank[key]["ts"] for of_rank in sums)
            for of_rank in sums:
                bar = of_rank[key]
                self.assertAlmostEqual(bar["args"]["waited_us"], min(last - bar["ts"], bar["dur"]), delta=0.01)

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

    def test_rows_after_a_change_of_plan_have_its_names(self):
        config = configuration(self.folder, replicas={"local": 2},
                               pipeline={"stages": 2, "chunks": 2, "changes": ["4: stages = 1, replicas = 4"]})
        cli.must_run("train", config, "--run-dir", self.run_dir, "--trace", "4..5")
        trace = trace_rules.read(self.run_dir / "trace.rank0.json.gz")
        trace_rules.check(trace)
        groups, rows = trace_rules.group_names(trace), trace_rules.row_names(trace)
        for step, stages in ((4, 2), (5, 1)):
            named = {(groups[bar["pid"]], rows[bar["pid"], bar["tid"]])
                     for bar in trace_rules.bars(trace, phase="optimizer", step=step)}
            self.assertEqual(named, {(f"rank 0 replica {device // stages}: cpu:{device}", f"stage {device % stages}")
                                     for device in range(4)})

    def test_evaluations_and_checkpoints_stand_between_the_steps(self):
        config = configuration(self.folder, checkpoint={"every_steps": 5})
        cli.must_run("train", config, "--run-dir", self.run_dir, "--trace", "3..20")  # evaluates after steps 4 and 8
        trace = trace_rules.read(self.run_dir / "trace.rank0.json.gz")
        trace_rules.check(trace)
        marks = {bar["args"]["step"]: bar for bar in trace_rules.bars(trace) if bar["name"].startswith("ProfilerStep#")}
        for phase, steps in (("evaluation", (4, 8)), ("checkpoint", (5, 8))):
            bars = trace_rules.bars(trace, phase=phase)
            self.assertEqual(len(bars), len(steps), phase)
            for bar, step in zip(bars, steps):
                self.assertEqual((bar["pid"], bar["tid"]), (marks[step]["pid"], marks[step]["tid"]))
                self.assertLessEqual(trace_rules.end(marks[step]), bar["ts"] + 1e-3)
                self.assertLessEqual(trace_rules.end(bar), marks[step + 1]["ts"] + 1e-3 if step < STEPS else float("inf"))

    @long_tests.only("tests/profiler has it in CI")
    def test_spans_that_found_no_room_are_told(self):
        config = configuration(self.folder, pipeline={"stages": 2, "chunks": 3000}, data={"name": "shapes", "samples": 3000},
                               train={"steps": 2, "global_batch": 3000, "lr": 0.05})
        done = cli.must_run("train", config, "--run-dir", self.run_dir, "--trace", "2")
        trace = trace_rules.read(self.run_dir / "trace.rank0.json.gz")
        dropped = trace["sluice"]["spans_dropped"]
        self.assertGreater(dropped, 0)
        self.assertIn(f"the trace of rank 0 lacks {dropped} spans", done.stderr)

    def test_a_run_that_diverges_leaves_its_trace(self):
        config = configuration(self.folder, train={"steps": STEPS, "global_batch": 16, "lr": 1e30})
        done = cli.run("train", config, "--run-dir", self.run_dir, "--trace", "1..8")
        self.assertEqual(done.returncode, 6, done.stderr)
        trace = trace_rules.read(self.run_dir / "trace.rank0.json.gz")
        trace_rules.check(trace)
        steps = {bar["args"]["step"] for bar in trace_rules.bars(trace, phase="forward")}
        self.assertIn(1, steps)
        self.assertIn(f"the run ended before its trace was complete: {len(steps)} step", done.stderr)
        # Before the first of the steps there is nothing to write.
        done = cli.run("train", config, "--run-dir", self.folder / "other", "--trace", "8")
        self.assertIn("--trace: the run made no step from 8 to 8", done.stderr)
        self.assertEqual(list((self.folder / "other").glob("trace*")), [])

    def lose_rank_1(self, how):
        """A run of two processes that loses one while both trace; rank 0's end."""
        config = configuration(self.folder, train={"steps": 100_000, "global_batch": 16, "lr": 1e-6},
                               replicas={"hang_timeout_s": 5.0})
        processes = cli.start_ranks(2, "train", config, "--trace", "3..1000", arguments_of={0: ["--run-dir", self.run_dir]})
        cli.wait_until(lambda: len(cli.events(self.run_dir, "step")) >= 4, processes[0])
        processes[1].send_signal(how)
        done = cli.finish(processes[0])
        processes[1].kill()
        cli.finish(processes[1])
        self.assertEqual(done.returncode, 5, done.stderr)
        trace = trace_rules.read(self.run_dir / "trace.rank0.json.gz")
        trace_rules.check(trace)
        steps = {bar["args"]["step"] for bar in trace_rules.bars(trace, phase="forward")}
        self.assertEqual(steps, set(range(3, max(steps) + 1)))
        self.assertIn(f"{len(steps)} steps written to", done.stderr)
        self.assertIn("the traces of 1 other process are lost", done.stderr)
        self.assertFalse(any("waited_us" in bar["args"] for bar in trace_rules.bars(trace)))
        self.assertEqual([file.name for file in self.run_dir.glob("trace*")], ["trace.rank0.json.gz"])

    def test_a_process_that_dies_leaves_rank_0_its_own_trace(self):
        self.run_dir.mkdir()
        (self.run_dir / "trace.rank1.json.gz").write_bytes(b"of an earlier run")
        self.lose_rank_1(signal.SIGKILL)

    @long_tests.only("it waits for 5 s; a process dies in CI")
    def test_a_process_that_hangs_leaves_rank_0_its_own_trace(self):
        self.lose_rank_1(signal.SIGSTOP)

    def test_a_signal_leaves_the_trace_of_all(self):
        config = configuration(self.folder, train={"steps": 100_000, "global_batch": 16, "lr": 1e-6})
        processes = cli.start_ranks(2, "train", config, "--trace", "3..1000", arguments_of={0: ["--run-dir", self.run_dir]})
        cli.wait_until(lambda: len(cli.events(self.run_dir, "step")) >= 4, processes[0])
        processes[1].send_signal(signal.SIGTERM)
        for done in cli.finish_all(processes):
            self.assertEqual(done.returncode, 130, done.stderr)
        steps = [{bar["args"]["step"] for bar in trace_rules.bars(
            trace_rules.read(self.run_dir / f"trace.rank{rank}.json.gz"), phase="forward")} for rank in (0, 1)]
        self.assertEqual(steps[0], steps[1])

    def test_traces_of_processes_that_are_no_more_go(self):
        config = configuration(self.folder)
        self.run_dir.mkdir()
        stale = ["trace.rank1.json.gz", "trace.rank12.json.gz"]
        others = ["trace.rank01.json.gz", "trace.rank1.json", "trace.rankx.json.gz", "trace.worker1.json.gz", "my.json.gz"]
        for name in stale + others:
            (self.run_dir / name).write_bytes(b"")
        cli.must_run("train", config, "--run-dir", self.run_dir, "--trace", "3")
        self.assertEqual({file.name for file in self.run_dir.glob("*.json*")} - {"metrics.jsonl"},
                         {*others, "trace.rank0.json.gz"})

    def test_profile_traces_the_steps_that_it_times(self):
        config = configuration(self.folder, profile={"steps": 4})
        file = self.folder / "steps.json.gz"
        cli.must_run("profile", config, "--out", self.folder / "profile.json", "--trace", file)
        trace = trace_rules.read(file)
        trace_rules.check(trace)
        marks = [bar for bar in trace_rules.bars(trace) if bar["name"].startswith("ProfilerStep#")]
        self.assertEqual(len(marks), 4)

    @long_tests.only("rank 0 says which steps of a training are traced in CI")
    def test_rank_0_says_whether_a_profile_is_traced(self):
        config = configuration(self.folder, profile={"steps": 2})
        for of_rank, other in ((0, 1), (1, 0)):
            with self.subTest(of_rank):
                folder = self.folder / str(of_rank)
                folder.mkdir()
                arguments = {of_rank: ["--trace", folder / "steps.json.gz"], other: []}
                arguments[0] = [*arguments[0], "--out", folder / "profile.json"]
                done = cli.finish_all(cli.start_ranks(2, "profile", config, arguments_of=arguments))
                self.assertEqual([process.returncode for process in done], [0, 0], done[0].stderr + done[1].stderr)
                self.assertEqual("--trace is ignored on rank 1" in done[1].stderr, of_rank == 1)
                names = ["steps.rank0.json.gz", "steps.rank1.json.gz"] if of_rank == 0 else []
                self.assertEqual(sorted(file.name for file in folder.glob("steps*")), names)

    def test_a_profile_refuses_a_trace_that_it_cannot_write(self):
        config = configuration(self.folder, profile={"steps": 2})
        out = self.folder / "profile.json"
        self.assertIn("--trace", self.refused("profile", config, "--out", out, "--trace", self.folder / "none" / "t.json",
                                              code=8))
        self.assertIn("--trace", self.refused("profile", config, "--out", out, "--trace", out))
        self.assertFalse(out.exists())

    def test_what_cannot_be_traced_is_said_before_anything_begins(self):
        config = configuration(self.folder)
        wrong = ("5..4", "many", "1..5000", "0..3", "3..", "..3", "-3", "3..4..5")
        for words in long_tests.some(wrong[:2], wrong, "one of each kind"):
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
        self.assertIn("--trace: the run made only steps 7 to 8 of 7 to 20", done.stderr)
        trace_rules.check(trace_rules.read(self.run_dir / "trace.rank0.json.gz"))
        done = cli.must_run("train", config, "--run-dir", self.folder / "other", "--trace", "20")
        self.assertIn("--trace: the run made no step from 20 to 20", done.stderr)
        self.assertEqual(list((self.folder / "other").glob("trace*")), [])
        # What was done before is not made again.
        done = cli.must_run("train", config, "--run-dir", self.folder / "other", "--resume", "auto", "--trace", "3..4")
        self.assertIn("--trace: the run is already complete", done.stderr)
        done = cli.must_run("train", config, "--run-dir", self.folder / "other", "--resume", "auto", "--trace", "3..4", "--set",
                            f"train.steps={STEPS + 2}")
        self.assertIn("--trace: the run made no step from 3 to 4", done.stderr)
        self.assertEqual(list((self.folder / "other").glob("trace*")), [])

    @long_tests.only("tests/profiler/trace_readers_test.py has it in CI")
    @unittest.skipUnless(trace_rules.HAS_HTA, "HolisticTraceAnalysis is not installed (bootstrap.sh --check-tools)")
    def test_holistic_trace_analysis_reads_what_we_wrote(self):
        traces = self.two_processes()
        files = [self.run_dir / f"trace.rank{rank}.json.gz" for rank in (0, 1)]
        breakdown, ranks = trace_rules.hta_breakdown(files, self.folder)
        self.assertEqual(ranks, [0, 1])
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
