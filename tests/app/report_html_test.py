#!/usr/bin/env python3
"""`sluice report --html`: runs of every kind as a page in a real browser; directories that are damaged or mean harm.

    report_html_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import contextlib
import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import tempfile
import unittest

import browser
import long_tests
import sluice_cli as cli

STEPS = 8
SMALL = {"device": {"list": "cpu"}, "model": {"name": "mlp", "image_size": 8}, "data": {"name": "shapes", "samples": 64},
         "train": {"steps": STEPS, "global_batch": 16, "lr": 0.05}}
FREEZE = {"model": {"name": "vit", "size": "nano", "image_size": 16}, "data": {"name": "shapes", "samples": 40},
          "train": {"epochs": 3, "global_batch": 10, "lr": 0.003}, "pipeline": {"stages": 2, "chunks": 2},
          "freeze": {"policy": "schedule", "schedule": ["1: 2", "2: 3"]}}
SERVER = {"train": {"steps": STEPS, "global_batch": 16, "lr": 0.03}, "replicas": {"sync": "ps"},
          "ps": {"clock": "virtual", "workers": 4, "policy": "asp", "induce": "ec2", "sample_s": 0.05}}
HARM = "<script>document.title='harm'</script><img src=x onerror=alert(1)>"


def setUpModule():
    """A run of every kind."""
    HtmlTest.folder = folder = pathlib.Path(unittest.enterModuleContext(tempfile.TemporaryDirectory()))
    config = HtmlTest.config = cli.write_config(folder / "small.toml", **SMALL)
    train = lambda name, *more, file=config: cli.must_run("train", file, "--run-dir", folder / name, *more)
    train("single")
    train("pipeline", *cli.options(pipeline={"stages": 2, "chunks": 4}))
    if long_tests.RUN:
        train("replicas", *cli.options(replicas={"local": 2}))
    cli.must_run_ranks(2, "train", config, "--run-dir", folder / "processes")
    train("freeze", file=cli.write_config(folder / "freeze.toml", **SMALL | FREEZE))
    train("server", file=cli.write_config(folder / "server.toml", **SMALL | SERVER))


class HtmlTest(unittest.TestCase):
    def page(self, *dirs, name="page.html"):
        target = self.folder / name
        cli.must_run("report", *dirs, "--html", target)
        return target

    def document(self, page, **look):
        text, complaints = browser.document(page, **look)
        self.assertEqual(complaints, [])
        self.assertIn('data-ready="yes"', text)
        return re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)  # what people see

    def copy(self, name, of="pipeline"):
        target = self.folder / name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.folder / of, target, ignore=lambda *_: [".lock"])  # whose process is gone
        return target


class KindsTest(HtmlTest):
    def assert_holds(self, kind, *words):
        text = self.document(self.page(self.folder / kind))
        for word in (f"<h1>{kind}</h1>", "Learning and speed", "Where the time of a step went", "Over the run", "Peak memory",
                     '<canvas role="img" aria-label="Loss"', *words):
            self.assertIn(word, text, kind)
        return text

    def test_a_single_device(self):
        text = self.assert_holds("single", "mlp on shapes", "1 stage × 1 replica", "done")
        for word in ("Parameter server", "Frozen layers", "undefined", "NaN", "[object"):
            self.assertNotIn(word, text)

    def test_a_traced_step_beside_its_simulation(self):
        run_dir = self.copy("traced")
        bars = [{"ph": "X", "cat": "kernel", "name": "f", "pid": stage + 1, "tid": 7, "ts": 100.0 * step + 10 * m, "dur": 9,
                 "args": {"phase": HARM if m == 3 else "forward", "stage": stage, "micro_batch": m, "replica": 0, "step": step}}
                for step in (10, 11) for stage in (0, 1) for m in range(4)]
        whole = gzip.compress(json.dumps({"traceEvents": bars, "sluice": {"rank": 0}}).encode())
        trace = run_dir / "trace.rank0.json.gz"
        trace.write_bytes(whole)
        text = self.document(self.page(run_dir))
        for word in ("Measured: step 11", "Simulated: 1f1b, 2 devices, 4 micro-batches", "replica 0, stage 1", "forward 2: 0.02 to"):
            self.assertIn(word, text)
        trace.write_bytes(whole[:len(whole) // 2])
        self.assertIn("trace.rank0.json.gz is damaged or was cut", self.document(self.page(run_dir)))

    def test_a_page_without_a_trace_says_how_to_get_one(self):
        self.assert_holds("pipeline", "2 stages × 1 replica · 1f1b", "Stages", "fc1, fc2", "sluice train CONFIG --trace 10..12")

    @long_tests.only("one more page; two processes have two replicas")
    def test_replicas(self):
        self.assert_holds("replicas", "1 stage × 2 replicas")

    def test_two_processes(self):
        self.assert_holds("processes", "1 stage × 2 replicas × 2 processes", "Over the processes: load,",
                           "of 2 processes: loss, rates and wall time cover all")

    def test_layers_that_freeze_and_a_plan_that_changes(self):
        self.assert_holds("freeze", "the plan changed ", "Frozen layers", "What happened on the way", "units frozen", "2 stages, 1 replica, ",
                          "Predicted against measured", "the last plan")

    def test_a_parameter_server(self):
        self.assert_holds("server", "Staleness of the pushes", "Batch sizes", "Compute time of a push", "How many pushes were how stale",
                          "Workers", "<dd>asp</dd>", "<dd>virtual</dd>", "compute virtual s")

    @long_tests.only("4 s")
    def test_several_runs_are_in_one_table_and_one_plot(self):
        kinds = ("single", "pipeline", "server")
        text = self.document(self.page(*(self.folder / kind for kind in kinds)))
        self.assertIn("<h1>3 runs</h1>", text)
        self.assertIn("Side by side", text)
        self.assertEqual(text.count('aria-label="Loss"'), 1)
        for kind in kinds:
            self.assertIn(f"<h2>{kind}</h2>", text)

    def test_it_looks_like_something_in_light_dark_and_on_a_phone(self):
        page = self.page(self.folder / "pipeline")
        for look in ({}, {"dark": True}, {"width": 500}):
            with self.subTest(look):
                picture = self.folder / "page.png"
                self.assertEqual(browser.screenshot(page, picture, **look), [])
                self.assertGreater(browser.distinct_lines(picture), 300)

    def test_it_needs_nothing_else(self):
        page = self.page(self.folder / "pipeline").read_text(encoding="utf-8")
        self.assertIn("default-src 'none'", page)
        self.assertIn("Chart.js Contributors", page)
        self.assertIsNone(re.search(r"<(link|img|iframe)\b|<script[^>]*\bsrc=|@import|url\(", page))


class HostileTest(HtmlTest):
    def test_names_that_mean_harm_are_text(self):
        run_dir = self.copy(HARM.replace("/", "\\"))
        metrics = run_dir / "metrics.jsonl"
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        for line in lines:
            if line["event"] == "plan":
                line["model"] = line["schedule"] = HARM
                line["stage_list"][0]["layers"] = [HARM]
            if line["event"] == "summary":
                line |= {"advice": [HARM], "peak_memory_bytes": {HARM: 1}, "peak_memory_by_kind": {HARM: {HARM: 1}},
                         "outcome": HARM}
        lines.insert(2, {"event": "fault", "time_s": 0, "step": 1, "what": "</script>" + HARM})
        lines.insert(2, {"event": "transition", "time_s": 0, "step": 1, "from": HARM, "to": [HARM], "seconds": HARM})
        metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
        text = self.document(self.page(run_dir))
        self.assertNotIn("<img", text)
        self.assertNotIn("<title>harm", text)
        self.assertIn("&lt;img src=x onerror=alert(1)&gt;", text)

    def test_characters_that_cannot_be_read_are_their_numbers(self):
        run_dir = self.copy("unseen")
        metrics = run_dir / "metrics.jsonl"
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        lines.insert(2, {"event": "fault", "time_s": 0, "step": 1, "what": "a\x1b[31mred\x00 \u202egnp.exe \\u001b \x9b tab\there"})
        lines.insert(2, {"event": "operators", "time_s": 0, "step": 1, "steps": 4, "rest_ms": 0, "rows": [
            {"layer": "fc", "pass": "forward", "operator": "aten::\u202emm", "calls": 8, "self_ms": 6.0, "flops": 12e6, "bytes": 0}]})
        # The records end without a summary, so that what was inserted is of the last start.
        metrics.write_text("".join(json.dumps(line) + "\n" for line in lines[:4]))
        text = self.document(self.page(run_dir))
        self.assertIn("fault: a\\u001b[31mred\\u0000 \\u202egnp.exe \\u001b \\u009b tab\there", text)
        self.assertIn("Operators: 1.5 ms a step", text)
        self.assertIn('<td class="text">aten::\\u202emm</td>', text)
        for unseen in "\x1b\u202e\x9b\x00":
            self.assertNotIn(unseen, text)

    def test_records_cut_anywhere_are_a_page_or_one_sentence(self):
        whole = (self.folder / "freeze" / "metrics.jsonl").read_bytes()
        run_dir = self.copy("cut", "freeze")
        sizes = (0, len(whole) // 2, len(whole) - 3, 1, 40, 500, len(whole) // 3)
        for size in long_tests.some(sizes[:3], sizes, "other places in a line"):
            with self.subTest(size):
                (run_dir / "metrics.jsonl").write_bytes(whole[:size])
                page = self.page(run_dir)
                self.assertIn(b'id="data"', page.read_bytes())
                if size in sizes[:2]:
                    self.assertIn("still running, or was killed", self.document(page))

    def test_values_of_other_kinds_do_not_stop_the_page(self):
        run_dir = self.copy("odd")
        lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
        for i, line in enumerate(lines):
            for name in list(line)[2:]:
                line[name] = [None, "NaN", -1, [], {}, 1e300, "x", True, [[[]]], {"a": {}}][(i + len(name)) % 10]
        (run_dir / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.document(self.page(run_dir))

    def test_what_is_no_run_is_refused_as_without_a_page(self):
        target = self.folder / "none.html"
        cases = ((2, "none of the 2 paths", [self.folder, self.folder / "nowhere"]),
                 (2, "there is no run directory", [self.folder / "nowhere"]), (2, "has no metrics.jsonl", [self.folder]))
        for code, word, dirs in long_tests.some(cases[:1], cases, "app_report has the others in CI"):
            done = cli.run("report", *dirs, "--html", target)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(word, cli.error_of(done))
            self.assertEqual(len(done.stderr.strip().splitlines()), 1)
        (self.folder / "junk").mkdir(exist_ok=True)
        (self.folder / "junk" / "metrics.jsonl").write_bytes(b"\x00\xff\n" * 9)
        self.assertEqual(cli.run("report", self.folder / "junk", "--html", target).returncode, 3)
        self.assertFalse(target.exists())
        workers = self.folder / "workers_alone"
        (workers / "workers").mkdir(parents=True, exist_ok=True)
        text = self.document(self.page(self.folder / "single", self.folder / "nowhere", workers))
        self.assertIn("left out: there is no run directory", text)
        self.assertIn("has only records of workers, and not of these runs", text)


class OutputTest(HtmlTest):
    def refused(self, code, word, *arguments):
        done = cli.run("report", self.folder / "single", *arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(word, cli.error_of(done))

    def test_files_that_cannot_be_written(self):
        run_dir = self.folder / "single"
        self.refused(2, "is a directory", "--html", run_dir)
        self.refused(2, "is also an input", "--html", run_dir / "metrics.jsonl")
        names = ("trace.rank0.json.gz", ".lock", "notes.txt")
        for name in long_tests.some(names[:1], names, "other names"):  # whatever it is, it is no page
            path = self.copy("kept", "single") / name
            path.write_bytes(b"\x1f\x8b not to be lost")
            self.refused(2, "exists and is not a report page", "--html", path)
            self.assertEqual(path.read_bytes(), b"\x1f\x8b not to be lost")
        self.refused(8, "No such file or directory", "--html", self.folder / "none" / "r.html")
        self.refused(2, "give --html a file", "--html", "-", "--json")
        self.refused(2, "--html", "--watch")
        if long_tests.RUN:
            self.refused(2, "give --html a file", "--html", "-", "--watch")

    def test_standard_output_and_json(self):
        done = cli.must_run("report", self.folder / "single", "--html", "-")
        self.assertTrue(done.stdout.startswith("<!DOCTYPE html>"))
        target = self.folder / "both.html"
        done = cli.must_run("report", self.folder / "single", "--html", target, "--json")
        self.assertEqual(len(json.loads(done.stdout)["runs"]), 1)
        self.assertTrue(target.exists())

    @contextlib.contextmanager
    def watched(self, name):
        """(a run that goes on, the watch of it, its page)"""
        run_dir, target = self.folder / name, self.folder / f"{name}.html"
        run = cli.start("train", self.config, "--run-dir", run_dir, "--set", "train.steps=10000000")
        watch = None
        try:
            cli.wait_until(lambda: len(cli.events(run_dir, "step")) > 0, run)
            watch = cli.start("report", run_dir, "--html", target, "--watch")
            cli.wait_until(target.exists, watch)
            yield run, watch, target
        finally:
            for process in (run, watch):
                if process is not None and process.poll() is None:
                    process.kill()

    def test_a_run_that_goes_on_is_watched_until_it_ends(self):
        with self.watched("live") as (run, watch, target):
            first = target.read_text(encoding="utf-8")
            self.assertIn('http-equiv="refresh"', first)
            cli.wait_until(lambda: target.read_text(encoding="utf-8") != first, watch)
            cli.stop(run, signal.SIGTERM)
            done = cli.finish(watch)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the run has ended", done.stderr)
        self.assertNotIn('http-equiv="refresh"', target.read_text(encoding="utf-8"))
        self.assertEqual([path.name for path in self.folder.glob("live.html*")], ["live.html"])

    @long_tests.only("CI watches a run that ends and one that is removed")
    def test_a_run_that_was_killed_is_watched_no_longer(self):
        with self.watched("gone") as (run, watch, target):
            run.kill()
            cli.finish(run)
            done = cli.finish(watch)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the process of the run is gone", done.stderr)
        self.assertNotIn('http-equiv="refresh"', target.read_text(encoding="utf-8"))

    def test_ctrl_c_ends_the_watch_with_a_last_page(self):
        run_dir, target = self.copy("stopped"), self.folder / "stopped.html"
        metrics = run_dir / "metrics.jsonl"
        metrics.write_text("".join(line + "\n" for line in metrics.read_text().splitlines() if '"summary"' not in line))
        watch = cli.start("report", run_dir, "--html", target, "--watch")
        cli.wait_until(target.exists, watch)
        done = cli.stop(watch, signal.SIGINT)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("SIGINT", done.stderr)
        self.assertNotIn('http-equiv="refresh"', target.read_text(encoding="utf-8"))

    @long_tests.only("7 s")
    def test_a_run_that_is_removed_ends_the_watch_with_a_page_that_stays(self):
        run_dir, target = self.copy("removed"), self.folder / "removed.html"
        metrics = run_dir / "metrics.jsonl"
        metrics.write_text("".join(line + "\n" for line in metrics.read_text().splitlines() if '"summary"' not in line))
        watch = cli.start("report", run_dir, "--html", target, "--watch")
        cli.wait_until(target.exists, watch)
        self.assertIn('http-equiv="refresh"', target.read_text(encoding="utf-8"))
        shutil.rmtree(run_dir)
        done = cli.finish(watch)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("no run is left to watch: there is no run directory", done.stderr)
        self.assertNotIn('http-equiv="refresh"', target.read_text(encoding="utf-8"))


if __name__ == "__main__":
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    unittest.main()
