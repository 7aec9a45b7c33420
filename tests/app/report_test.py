#!/usr/bin/env python3
"""`sluice report`: what it says about runs, against metrics.jsonl averaged here; and about what is no run.

    report_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import json
import os
import pathlib
import shutil
import tempfile
import unittest

import long_tests
import sluice_cli as cli

STEPS = 6


def mean(lines, field):
    """Over the steps that have it; None where none has."""
    values = [line[field] for line in lines if line.get(field) is not None]
    return sum(values) / len(values) if values else None


def rate(lines, field):
    """Over the time of the steps that have it."""
    pairs = [(line[field], line["step_ms"]) for line in lines if line.get(field) is not None]
    return sum(value * time for value, time in pairs) / sum(time for _, time in pairs) if pairs else None


def setUpModule():
    """Two runs that all tests read: one device, and two stages x two replicas."""
    ReportTest.folder = folder = pathlib.Path(unittest.enterModuleContext(tempfile.TemporaryDirectory()))
    ReportTest.config = config = cli.write_config(
        folder / "small.toml", device={"list": "cpu"}, model={"name": "mlp", "image_size": 8},
        data={"name": "shapes", "samples": 64}, train={"steps": STEPS, "global_batch": 16, "lr": 0.05})
    ReportTest.one, ReportTest.grid = folder / "one", folder / "grid"
    cli.must_run("train", config, "--run-dir", ReportTest.one)
    cli.must_run("train", config, "--run-dir", ReportTest.grid, "--set", "pipeline.stages=2", "--set", "pipeline.chunks=2",
                 "--set", "replicas.local=2", "--set", "checkpoint.every_steps=3")


class ReportTest(unittest.TestCase):
    def report(self, *dirs):
        return json.loads(cli.must_run("report", *dirs, "--json").stdout)["runs"]

    def copy(self, name="copy"):
        """A copy of a run to damage."""
        target = self.folder / name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.grid, target)
        return target

    def assert_refused(self, code, word, *dirs):
        done = cli.run("report", *dirs)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        self.assertIn(word, cli.error_of(done))


class NumbersTest(ReportTest):
    def test_means_are_those_of_the_step_lines(self):
        for run_dir in (self.one, self.grid):
            steps = cli.events(run_dir, "step")
            self.assertEqual(len(steps), STEPS)
            report = self.report(run_dir)[0]
            times = {name for line in steps for name in line if name.endswith("_ms")}
            self.assertIn("backward_ms", times)
            for name in times:
                expected = mean(steps, name)
                self.assertAlmostEqual(report["means"].get(name, expected), expected, msg=name)
                self.assertEqual(name in report["means"], expected is not None, name)
            for name in ("syncs_per_s", "net_bytes_per_s", "flops_per_s", "mfu"):
                expected = rate(steps, name)
                self.assertEqual(name in report["means"], expected is not None, name)
                if expected is not None:
                    self.assertAlmostEqual(report["means"][name], expected, delta=1e-9 * max(1, expected), msg=name)
            all_samples, all_ms = (sum(line[name] for line in steps) for name in ("samples", "step_ms"))
            self.assertAlmostEqual(report["samples_per_s"] / (1000 * all_samples / all_ms), 1)
            busy = [rate([{"step_ms": line["step_ms"], "busy": line["device_busy"][i]} for line in steps], "busy")
                    for i in range(len(steps[0]["device_busy"]))]
            self.assertAlmostEqual(report["device_busy_mean"], sum(busy) / len(busy))
            for one, expected in zip(report["device_busy"], busy, strict=True):
                self.assertAlmostEqual(one, expected)
            self.assertEqual(report["train_loss"], steps[-1]["loss"])

    def test_it_says_what_ran_and_what_became_of_it(self):
        report = self.report(self.grid)[0]
        summary = cli.events(self.grid, "summary")[-1]
        expected = {"outcome": "done", "model": "mlp", "data": "shapes", "devices": 4, "processes": 1, "stages": 2,
                    "replicas": 2, "chunks": 2, "schedule": "1f1b", "global_batch": 16, "steps": STEPS, "planned_steps": STEPS,
                    "wall_s": summary["wall_s"], "peak_memory_bytes": summary["peak_memory_bytes"],
                    "breakdown": summary.get("breakdown"), "advice": summary.get("advice"), "advice_steps": summary.get("advice_steps"), "top1": summary["top1"], "loss": summary["loss"],
                    "checkpoints": 2, "resumed_at": None, "evaluation_s": summary.get("evaluation_s"),
                    "checkpoints_s": summary.get("checkpoints_s"), "incomplete_steps": 0,
                    "speedup": 1, "fault": None, "unreadable_lines": 0, "torn_last_line": False}
        self.assertEqual({name: report[name] for name in expected}, expected)
        lines = cli.events(self.grid)
        self.assertEqual(report["counts"], {name: sum(line["event"] == name for line in lines)
                                            for name in {line["event"] for line in lines}})
        evaluations = cli.events(self.grid, "eval")
        self.assertEqual(report["evaluations"], {"first": evaluations[0], "last": evaluations[-1],
                                                 "best": max(evaluations, key=lambda line: line["top1"])})
        self.assertEqual(report["config"]["optimizer"], "momentum")

    def test_speed_up_is_against_the_first(self):
        rates = [run["samples_per_s"] for run in self.report(self.one, self.grid)]
        for dirs, first in (((self.one, self.grid), rates[0]), ((self.grid, self.one), rates[1])):
            for run in self.report(*dirs):
                self.assertAlmostEqual(run["speedup"], run["samples_per_s"] / first)


class TextTest(ReportTest):
    def test_one_run_is_told_in_full(self):
        text = cli.must_run("report", self.grid).stdout
        lines = text.splitlines()
        self.assertIn(f"{self.grid}: done after step {STEPS}/{STEPS}", lines[0])
        self.assertIn("mlp on shapes: 2 stages x 2 replicas over 1 process", lines[1])
        self.assertIn(f"where the time went, mean of all {STEPS} steps", text)
        table = [line.split() for line in lines if line.startswith(("replica ", "mean ", "all stages "))]
        step_ms = mean(cli.events(self.grid, "step"), "step_ms")
        for row in table:
            numbers = [float(word) for word in row if word.replace(".", "", 1).isdigit() and "." in word]
            *parts, step, _busy = numbers
            self.assertAlmostEqual(step, step_ms, delta=0.006)
            self.assertAlmostEqual(sum(parts), step, delta=0.006 * 10)
        self.assertTrue(table)
        self.assertIn("2 checkpoints", text)
        self.assertIn("\ngoodput ", text)
        last = next(line for line in lines if line.startswith("last ")).split()
        self.assertEqual(int(last[2]), cli.events(self.grid, "eval")[-1]["epoch"] + 1)
        self.assertRegex(text, r"\nadvice(, from the last \d+ steps:|: none;)")
        for word in ("first", "best", "last"):
            self.assertTrue(any(line.startswith(word) for line in lines), word)

    def test_several_runs_are_rows_of_one_table(self):
        text = cli.must_run("report", self.one, self.grid).stdout
        heading, _units, *rows = text.splitlines()
        self.assertEqual([row.split()[0] for row in rows], ["one", "grid"])
        self.assertLessEqual(max(map(len, text.splitlines())), 160)
        for row, run in zip(rows, self.report(self.one, self.grid), strict=True):
            cells = dict(zip(heading.split(), row.split(), strict=True))
            for name, field in (("model", "model"), ("dev", "devices"), ("procs", "processes"), ("stages", "stages"),
                                ("repl", "replicas"), ("chunks", "chunks"), ("schedule", "schedule"), ("batch", "global_batch"),
                                ("steps", "steps")):
                self.assertEqual(cells[name], str(run[field]), name)
            for name, value, decimals in (("samples", run["samples_per_s"], 1), ("step", run["step_ms"], 1),
                                          ("busy", 100 * run["device_busy_mean"], 1), ("load", run["means"]["load_ms"], 1),
                                          ("memory", run["peak_memory_bytes"]["process"] / 2**20, 0), ("top-1", run["top1"], 2),
                                          ("wall", run["wall_s"], 1), ("speed-up", run["speedup"], 2)):
                self.assertAlmostEqual(float(cells[name]), value, delta=0.51 * 10**-decimals, msg=name)


class UnfinishedTest(ReportTest):
    def metrics(self, run_dir):
        return run_dir / "metrics.jsonl"

    def test_a_killed_run_is_told_from_its_whole_lines(self):
        run_dir = self.copy()
        lines = [line for line in self.metrics(run_dir).read_text().splitlines() if '"summary"' not in line]
        text = "\n".join(lines)
        self.metrics(run_dir).write_text(text[:-3])  # the last line is torn
        report = self.report(run_dir)[0]
        self.assertEqual((report["outcome"], report["torn_last_line"], report["unreadable_lines"]), ("unfinished", True, 0))
        self.assertIsNone(report["peak_memory_bytes"])
        text = cli.must_run("report", run_dir).stdout
        self.assertIn("unfinished (still running, or killed)", text)
        self.assertIn("note: the last line of metrics.jsonl is incomplete", text)
        self.assertIn("\nall stages ", text)
        row = cli.must_run("report", self.one, run_dir).stdout.splitlines()[-1]
        self.assertIn(" - ", row, "memory is not known")

    def test_a_run_that_goes_on_is_told(self):
        run_dir = self.folder / "live"
        process = cli.start("train", self.config, "--run-dir", run_dir, "--set", "train.steps=1000000")
        try:
            cli.wait_until(lambda: (run_dir / "metrics.jsonl").exists()
                           and '"event":"step"' in (run_dir / "metrics.jsonl").read_text(), process)
            report = self.report(run_dir)[0]
        finally:
            process.kill()
            cli.finish(process)
        self.assertEqual(report["outcome"], "unfinished")
        self.assertGreater(report["steps"], 0)
        self.assertGreater(report["samples_per_s"], 0)

    def test_a_resumed_run_counts_every_step_once(self):
        run_dir = self.folder / "resumed"
        cli.must_run("train", self.config, "--run-dir", run_dir, "--set", "train.steps=3", "--set", "checkpoint.every_steps=3")
        cli.must_run("train", self.config, "--run-dir", run_dir, "--resume", "auto", "--set", f"train.steps={STEPS}")
        report = self.report(run_dir)[0]
        self.assertEqual((report["steps"], report["recorded_steps"], report["counts"]["resume"]), (STEPS, STEPS, 1))
        self.assertEqual(report["breakdown_steps"], STEPS - 3)
        self.assertEqual(report["outcome"], "done")
        self.assertEqual((report["checkpoints"], report["resumed_at"]), (2, 3))
        text = cli.must_run("report", run_dir).stdout
        self.assertIn(f"mean since the resume at step 3 ({STEPS - 3} steps)", text)
        self.assertIn(f"\nwhole run ({STEPS} steps): ", text)
        self.assertIn("2 checkpoints, 1 resume", text)

    def test_a_run_without_profile_says_why_there_is_no_advice(self):
        run_dir = self.folder / "off"
        cli.must_run("train", self.config, "--run-dir", run_dir, "--set", "profile.level=off")
        text = cli.must_run("report", run_dir).stdout
        self.assertIn('\nadvice: - (nothing was recorded: profile.level = "off")\n', text)

    def test_where_cupti_is_unavailable_one_warning_says_so_and_events_are_used(self):
        run_dir = self.folder / "unavailable"
        run = cli.must_run("train", self.config, "--run-dir", run_dir, "--set", "profile.level=cupti")
        said = [line for line in run.stderr.splitlines() if "profile.level" in line]
        self.assertEqual(len(said), 1, run.stderr)
        self.assertIn('profile.level = "cupti": unavailable (no device of the run is a GPU); clocks are used',
                      said[0])
        lines = [json.loads(line) for line in self.metrics(run_dir).read_text().splitlines()]
        self.assertNotIn("kernels", [line["event"] for line in lines])
        self.assertTrue(all(line["forward_ms"] > 0 for line in lines if line["event"] == "step"))

    def test_garbage_between_the_lines_is_left_out_and_said(self):
        run_dir = self.copy()
        lines = self.metrics(run_dir).read_bytes().splitlines()
        junk = [b"garbage", b"\x00\xff\xfe", b"[1,2]", b'{"step":1}', b'{"event":"step"', b"nan"]
        self.metrics(run_dir).write_bytes(b"\n".join([lines[0], *junk, *lines[1:]]) + b"\n")
        damaged, whole = self.report(run_dir)[0], self.report(self.grid)[0]
        self.assertEqual(damaged["unreadable_lines"], len(junk))
        self.assertEqual(damaged["means"], whole["means"])
        self.assertIn(f"{len(junk)} lines of metrics.jsonl cannot be read", cli.must_run("report", run_dir).stdout)

    def test_a_line_that_is_nested_too_deep_is_left_out(self):
        run_dir = self.copy()
        deep = b'{"event":"plan","a":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n"
        self.metrics(run_dir).write_bytes(deep + self.metrics(run_dir).read_bytes())
        self.assertEqual(self.report(run_dir)[0]["unreadable_lines"], 1)

    def test_a_configuration_that_is_a_pipe_keeps_nobody_waiting(self):
        run_dir = self.copy()
        (run_dir / "config.toml").unlink()
        os.mkfifo(run_dir / "config.toml")
        self.assertIn("\nnote: config.toml is skipped: it is not a file\n", cli.must_run("report", run_dir).stdout)

    def test_a_run_without_its_configuration_is_told_from_its_plan(self):
        run_dir = self.copy()
        contents = (None, "[model]\nnonsense = 1\n", "no = toml = at all")
        for content in long_tests.some(contents[:2], contents, "no TOML"):
            if content is None:
                (run_dir / "config.toml").unlink()
            else:
                (run_dir / "config.toml").write_text(content)
            self.assertEqual(self.report(run_dir)[0]["model"], "mlp")
            note = "config.toml is missing\n" if content is None else "config.toml is skipped: "
            self.assertIn(f"\nnote: {note}", cli.must_run("report", run_dir).stdout)

    def test_a_run_that_has_just_begun_is_one_line(self):
        run_dir = self.copy()
        for content, torn in ((b'{"event":"pl', "; the only line of metrics.jsonl is incomplete"), (b"", "")):
            self.metrics(run_dir).write_bytes(content)
            self.assertEqual(cli.must_run("report", run_dir).stdout, f"{run_dir}: no record yet (0 steps){torn}\n")
        row = cli.must_run("report", self.one, run_dir).stdout.splitlines()[-1].split()
        self.assertGreater(row.count("-"), 10)


class RefusedTest(ReportTest):
    def test_what_is_no_run_is_2(self):
        self.assert_refused(2, "--help")
        self.assert_refused(2, "none of the 2 paths is a readable run; the first: there is no run directory",
                            self.folder / "nowhere", self.one / "metrics.jsonl")
        if long_tests.RUN:  # in CI among runs, below
            self.assert_refused(2, "there is no run directory", self.folder / "nowhere")
            self.assert_refused(2, "has no metrics.jsonl", self.folder)
            self.assert_refused(2, "is a file", self.one / "metrics.jsonl")
            self.assert_refused(2, "empty", "")

    def test_what_is_no_run_among_runs_is_named_and_left_out(self):
        nowhere, file = self.folder / "nowhere", self.one / "metrics.jsonl"
        done = cli.must_run("report", self.one, nowhere, self.folder, self.grid, file)
        self.assertEqual([row.split()[0] for row in done.stdout.splitlines()[2:]], ["one", "grid"])
        warnings = done.stderr.splitlines()
        self.assertEqual(len(warnings), 3, done.stderr)
        for warning, word in zip(warnings, (f"no run directory {nowhere}", f"{self.folder} has no metrics.jsonl",
                                            f"{file} is a file"), strict=True):
            self.assertIn(" warning left out: ", warning)
            self.assertIn(word, warning)
        done = json.loads(cli.must_run("report", self.folder, self.one, "--json").stdout)
        self.assertEqual([run["run_dir"] for run in done["runs"]], [str(self.one)])
        self.assertEqual(len(done["skipped"]), 1)
        self.assertIn("has no metrics.jsonl", done["skipped"][0])

    def test_records_that_nobody_can_read_are_3(self):
        run_dir = self.folder / "junk"
        run_dir.mkdir()
        contents = (b"\x7fELF\x02\x01\n\x00\x00\n", b'{"a":' * 100000 + b"\n", b"hello\n", bytes(range(256)) * 50, b"[" * 100000)
        for content in long_tests.some(contents[:2], contents, "one of each kind"):
            (run_dir / "metrics.jsonl").write_bytes(content)
            self.assert_refused(3, "no record of a run", run_dir)

    def test_what_may_not_be_read_is_3(self):
        loop = self.folder / "loop"
        loop.symlink_to(loop)
        self.assert_refused(3, "cannot be read: Too many levels of symbolic links", loop)

    def test_a_path_that_is_not_utf8_does_not_break_json(self):
        run_dir = self.copy("odd")
        odd = bytes(self.folder) + b"/odd\xff"
        run_dir.rename(pathlib.Path(odd.decode("utf-8", "surrogateescape")))
        done = cli.must_run("report", odd.decode("utf-8", "surrogateescape"), "--json")
        self.assertIn("odd\N{REPLACEMENT CHARACTER}", json.loads(done.stdout)["runs"][0]["run_dir"])


if __name__ == "__main__":
    unittest.main()
