#!/usr/bin/env python3
"""What workers of a parameter server tell of themselves and of what goes wrong in them, and what `report` makes of it.

    worker_records_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import json
import pathlib
import re
import signal
import tempfile
import unittest

import sluice_cli as cli

BATCH, TOO_MUCH, LESS, STEPS = 8, 64, 4, 120
DISJOINT = ("load_ms", "forward_ms", "backward_ms", "transfer_ms", "allreduce_exposed_ms", "optimizer_ms", "idle_ms")
SERVER, SHARES_ITS_FOLDER, RUNS_OUT, WRITES_NOTHING = range(4)  # ranks; a worker's number is one less


def own_records(run_dir, worker, event=None):
    """The lines of a worker's own file, or those of one event."""
    lines = [json.loads(line) for line in (run_dir / f"workers/{worker}.jsonl").read_text().splitlines()]
    return [line for line in lines if event in (None, line["event"])]


class WorkerRecordsTest(unittest.TestCase):
    """One run: three workers, of which one runs out of memory and comes back with a smaller batch."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.run_dir, cls.elsewhere, cls.cwd = (cls.folder / name for name in ("run", "elsewhere", "cwd"))
        cls.cwd.mkdir()
        config = cli.write_config(
            cls.folder / "run.toml", device={"list": "cpu", "threads": 1}, model={"name": "resnet8", "image_size": 16},
            data={"name": "shapes", "samples": 96}, train={"steps": STEPS, "lr": 0.01, "eval_every_steps": STEPS},
            pipeline={"chunks": 2}, replicas={"sync": "ps", "hang_timeout_s": 60},
            ps={"policy": "asp", "worker_batch": BATCH, "induce": "exponential", "induce_shift_s": 0.04, "induce_mean_s": 0.02})
        port, started = cli.free_port(), []
        cls.addClassCleanup(lambda: [process.kill() for process in started if process.poll() is None])

        def start(rank, *arguments, **popen):
            started.append(cli.start("train", config, *arguments, env=cli.rank_environment(rank, 4, port), **popen))
            return started[-1]

        limited = ("--run-dir", cls.elsewhere, "--set", "device.memory_limit=4MiB")
        server = start(SERVER, "--run-dir", cls.run_dir)
        others = [start(SHARES_ITS_FOLDER, "--run-dir", cls.run_dir), start(WRITES_NOTHING, cwd=cls.cwd)]
        cls.failed = cli.finish(start(RUNS_OUT, *limited, "--set", f"ps.worker_batch={TOO_MUCH}"))
        steps = len(cli.events(cls.run_dir, "step"))
        cli.wait_until(lambda: len(cli.events(cls.run_dir, "step")) >= steps + 5, server)  # the others go on
        for process in others:  # or a slow machine has done all steps before the third is back
            process.send_signal(signal.SIGSTOP)
        again = start(RUNS_OUT, *limited, "--set", f"ps.worker_batch={LESS}")
        cli.wait_until(lambda: RUNS_OUT - 1 in cli.column(cls.run_dir, "worker", "push"), again)
        for process in others:
            process.send_signal(signal.SIGCONT)
        cls.server, *cls.workers = cli.finish_all([server, *others, again])

    def test_who_has_no_memory_for_its_batch_ends_with_4_and_the_others_go_on(self):
        self.assertEqual(self.failed.returncode, 4, self.failed.stderr)
        for process in (self.server, *self.workers):
            self.assertEqual(process.returncode, 0, process.stderr)
        self.assertEqual(cli.column(self.run_dir, "step"), list(range(1, STEPS + 1)))
        examples = {push["examples"] for push in cli.events(self.run_dir, "push") if push["worker"] == RUNS_OUT - 1}
        self.assertIn(LESS, examples)
        self.assertLessEqual(max(examples), LESS, "it has come back with a smaller batch")

    def test_the_server_says_which_worker_batch_layer_and_shape_and_what_to_do(self):
        line = next(line for line in self.server.stderr.splitlines() if " has failed: " in line)
        self.assertRegex(line, (
            rf" warning worker {RUNS_OUT - 1} \(.+, process \d+\) has failed: a step of {TOO_MUCH} samples: replica 0 stage 0 at "
            rf"action 0[FB]\d \(\d of 5, micro-batch \d\), in (forward|backward) of [\w.]+( \.\. [\w.]+)? with samples "
            rf"\[{TOO_MUCH // 2}, 3, 16, 16\]: out of memory on cpu:0: no room for [\d.]+ [KM]iB in its device.memory_limit of "
            rf"4.0 MiB, which holds .*; use a smaller ps.worker_batch, more pipeline.chunks or more pipeline.stages: "))
        self.assertNotIn("train.global_batch", line)
        fits = re.search(r"ps.worker_batch = (\d+) would need about", line)
        self.assertTrue(fits and LESS <= int(fits[1]) < TOO_MUCH, line)
        news = next(line for line in cli.events(self.run_dir, "worker") if line["what"] == "failed")
        self.assertIn(news["why"], line)
        self.assertIn(news["why"], cli.error_of(self.failed), "and the worker says the same")

    def test_a_worker_tells_of_each_push_where_its_time_went(self):
        number = SHARES_ITS_FOLDER - 1
        start, *steps, summary = own_records(self.run_dir, number)
        self.assertEqual((start["event"], summary["event"], summary["outcome"]), ("start", "summary", "done"))
        expected = {"worker": number, "batch": BATCH, "stages": 1, "replicas": 1, "chunks": 2, "devices": ["cpu:0"]}
        self.assertEqual({name: start[name] for name in expected}, expected)
        self.assertEqual(start["where"], f"{start['host']}, process {start['pid']}")
        joined = [line for line in cli.events(self.run_dir, "worker") if (line["worker"], line["what"]) == (number, "joined")]
        self.assertEqual([line["session"] for line in joined], [start["session"]])
        for index, step in enumerate(steps):
            self.assertEqual((step["event"], step["step"]), ("step", index + 1))
            self.assertAlmostEqual(sum(step[name] for name in DISJOINT), step["step_ms"], 3)
            self.assertGreater(min(step["forward_ms"], step["backward_ms"], step["sleep_ms"]), 0)
            self.assertLessEqual(step["wait_ms"] + step["sleep_ms"], step["idle_ms"])
        # What the server has taken of it is what it has told; the last may have come after the end.
        pushes = [push for push in cli.events(self.run_dir, "push") if push["worker"] == number]
        self.assertLessEqual(len(pushes), len(steps))
        for push, step in zip(pushes, steps):
            self.assertEqual((push["examples"], push["version"]), (step["samples"], step["version"]))
            self.assertAlmostEqual(1000 * push["sleep_s"], step["sleep_ms"], 2)
            self.assertGreaterEqual(1000 * push["compute_s"], step["forward_ms"] + step["backward_ms"])
        self.assertEqual(summary["samples"], sum(step["samples"] for step in steps))

    def test_a_worker_that_comes_back_goes_on_in_its_file(self):
        lines = own_records(self.elsewhere, RUNS_OUT - 1)
        events = [line["event"] for line in lines]
        self.assertEqual(events[:3], ["start", "fault", "start"])
        self.assertEqual(set(events[3:-1]), {"step"})
        self.assertEqual(events[-1], "summary")
        self.assertEqual([lines[0]["batch"], lines[2]["batch"]], [TOO_MUCH, LESS])
        self.assertEqual((lines[1]["exit_code"], lines[1]["step"]), (4, 0))
        self.assertIn(lines[1]["what"], cli.error_of(self.failed))

    def test_without_a_folder_it_writes_nothing(self):
        self.assertEqual(list(self.cwd.iterdir()), [])
        self.assertEqual([path.name for path in (self.run_dir / "workers").iterdir()], [f"{SHARES_ITS_FOLDER - 1}.jsonl"])

    def test_report_puts_the_workers_of_all_folders_into_one_table(self):
        text = cli.must_run("report", self.run_dir, self.elsewhere).stdout
        self.assertRegex(text, r"\nparameter server: asp, 3 workers, 8 samples each, clock real\n")
        report = json.loads(cli.must_run("report", self.elsewhere, self.run_dir, "--json").stdout)
        self.assertEqual((len(report["runs"]), report["skipped"]), (1, []))
        pushes, news = cli.events(self.run_dir, "push"), cli.events(self.run_dir, "worker")
        for number, worker in enumerate(report["runs"][0]["workers"]):
            own = [push for push in pushes if push["worker"] == number]
            self.assertEqual((worker["worker"], worker["pushes"]), (number, len(own)))
            self.assertEqual(worker["examples"], sum(push["examples"] for push in own))
            self.assertAlmostEqual(worker["share"], worker["examples"] / sum(push["examples"] for push in pushes))
            for name in ("compute_s", "idle_s", "send_s", "sleep_s", "staleness"):
                self.assertAlmostEqual(worker[name], sum(push[name] for push in own) / len(own), msg=name)
            self.assertEqual(worker["staleness_max"], max(push["staleness"] for push in own))
            for what in ("joined", "left", "failed", "lost"):
                self.assertEqual(worker[what], sum((line["worker"], line["what"]) == (number, what) for line in news), what)
            told = {SHARES_ITS_FOLDER - 1: self.run_dir, RUNS_OUT - 1: self.elsewhere}.get(number)
            self.assertEqual(worker["own_records"] is None, told is None)
            if told is not None:
                steps = own_records(told, number, "step")
                self.assertEqual(worker["own_records"]["pushes"], len(steps))
                self.assertAlmostEqual(worker["own_records"]["means"]["wait_ms"],
                                       sum(step["wait_ms"] for step in steps) / len(steps))
                self.assertRegex(text, rf"\nworker {number} \({len(steps)} pushes")
        self.assertIn(f"\nnote: worker {RUNS_OUT - 1} failed after step ", text)

    def test_records_of_workers_alone_are_no_run(self):
        done = cli.run("report", self.elsewhere)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("give the run directory of their parameter server", cli.error_of(done))


if __name__ == "__main__":
    unittest.main(verbosity=2)
