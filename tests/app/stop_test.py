#!/usr/bin/env python3
"""What a run does when it is told to stop, and when those who read its output go away.

    stop_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import os
import pathlib
import signal
import tempfile
import time
import unittest

import long_tests
import sluice_cli as cli


class StopCase(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def configuration(self, **changes):
        tables = {"device": {"list": "cpu"}, "model": {"name": "mlp", "image_size": 8},
                  "data": {"name": "shapes", "samples": 65}, "train": {"global_batch": 16, "lr": 0.05, "steps": 1000000},
                  "pipeline": {}, "log": {}}
        return cli.write_config(self.folder / "small.toml",
                                **{table: {**values, **changes.get(table, {})} for table, values in tables.items()})

    def start(self, run_dir, config, *arguments, **more):
        return cli.start("train", config, "--run-dir", run_dir, *arguments, **more)

    def steps_so_far(self, run_dir):
        metrics = run_dir / "metrics.jsonl"
        return metrics.read_text().count('"event":"step"') if metrics.exists() else 0

    def start_and_wait_for_a_step(self, run_dir, hang_up=signal.SIG_DFL, **more):
        """hang_up: what SIGHUP does by default; whoever runs this test may be under nohup."""
        process = self.start(run_dir, self.configuration(),
                             preexec_fn=lambda: signal.signal(signal.SIGHUP, hang_up), **more)
        cli.wait_until(lambda: self.steps_so_far(run_dir) > 0, process)
        return process

    def assert_saved_where_it_stopped(self, run_dir):
        steps = [line["step"] for line in cli.events(run_dir, "step")]
        self.assertEqual(max(cli.checkpoints(run_dir)), steps[-1])
        self.assertEqual(cli.events(run_dir, "summary")[-1]["outcome"], "interrupted")


class StopTest(StopCase):
    def test_a_signal_is_130_after_saving(self):
        for number in long_tests.some((signal.SIGTERM, signal.SIGHUP), (signal.SIGINT, signal.SIGTERM, signal.SIGHUP), "one more signal"):
            with self.subTest(number.name):
                run_dir = self.folder / number.name
                done = cli.stop(self.start_and_wait_for_a_step(run_dir), number)
                self.assertEqual(done.returncode, 130, done.stderr)
                self.assertIn(f"stopped by {number.name} after step", cli.error_of(done))
                self.assertIn("--resume auto", cli.error_of(done))
                self.assert_saved_where_it_stopped(run_dir)

    # LibTorch's initialisers take 0.3 s, and ended with the shell's code.
    def test_a_signal_before_anything_else_is_130(self):
        terminated = 1 << (signal.SIGTERM - 1)
        for environment in ({"GOMP_SPINCOUNT": "3000"}, {}):
            with self.subTest(environment):
                process = self.start(self.folder / "run", self.configuration(),
                                     env={**{name: value for name, value in cli.environment_without_launchers().items()
                                             if name != "GOMP_SPINCOUNT"}, **environment})
                status = pathlib.Path(f"/proc/{process.pid}/status")
                # Handled, or blocked while it starts again.
                cli.wait_until(lambda: any(int(line.split()[1], 16) & terminated for line in status.read_text().splitlines()
                                           if line.startswith(("SigCgt:", "SigBlk:"))), process)
                done = cli.stop(process)
                self.assertEqual(done.returncode, 130, done.stderr)
                self.assertEqual(done.stderr, "sluice: stopped by a signal while it started; nothing was done\n")

    def slow_to_plan(self, **pipeline):
        """Measuring its layers, or a step in each number of chunks, takes long, and nothing ends it but a signal."""
        return self.configuration(model={"name": "vit", "size": "tiny", "image_size": 32}, data={"samples": 4096},
                                  train={"global_batch": 512},
                                  pipeline={"stages": 2, "cost_cache": "off", "planning_budget_s": 10000, **pipeline})

    def test_a_signal_while_planning_ends_it_and_leaves_nothing(self):
        planning = {"measuring 26 layers": {}, "timing steps without update": {"partition": [13, 13], "chunks": "auto"}}
        for line, pipeline in planning.items():
            for number in long_tests.some((signal.SIGINT,), (signal.SIGINT, signal.SIGTERM), "one more signal"):
                with self.subTest(line, number=number.name):
                    run_dir = self.folder / "run"
                    process = self.start(run_dir, self.slow_to_plan(**pipeline))
                    log = run_dir / "log.txt"
                    cli.wait_until(lambda: log.exists() and line in log.read_text(), process)
                    done = cli.stop(process, number)
                    self.assertEqual(done.returncode, 130, done.stderr)
                    self.assertIn(f"stopped by {number.name} before the first step; nothing was trained or saved",
                                  cli.error_of(done))
                    self.assertFalse(run_dir.exists(), done.stderr)

    def test_a_signal_to_one_rank_while_rank_0_plans_ends_all(self):
        for rank in long_tests.some((1,), (0, 1), "the rank that plans"):
            with self.subTest(rank=rank):
                run_dir = self.folder / "run"
                processes = cli.start_ranks(2, "train", self.slow_to_plan(), "--run-dir", run_dir)
                log = run_dir / "log.txt"
                cli.wait_until(lambda: log.exists() and "measuring 26 layers" in log.read_text(), processes[0])
                processes[rank].send_signal(signal.SIGTERM)
                done = cli.finish_all(processes)
                self.assertEqual([process.returncode for process in done], [130, 130], [one.stderr for one in done])
                self.assertIn(f"rank {rank} (host ", cli.error_of(done[1 - rank]))
                self.assertIn("was stopped by SIGTERM before the first step", cli.error_of(done[1 - rank]))
                self.assertFalse(run_dir.exists())

    def tune_and_its_child(self, scratch):
        """A tuner whose child measures for long, and the child's process id."""
        scratch.mkdir(exist_ok=True)
        process = cli.start("tune", self.slow_to_plan(), "--out", self.folder / "tuned.toml",
                            env={**cli.environment_without_launchers(), "TMPDIR": str(scratch)})
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        cli.wait_until(lambda: children.read_text().split(), process)
        return process, int(children.read_text().split()[0])

    def is_running(self, pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
        except (FileNotFoundError, ProcessLookupError):
            return False

    def test_a_signal_ends_tune_with_its_child_and_leaves_nothing(self):
        for number in long_tests.some((signal.SIGTERM,), (signal.SIGINT, signal.SIGTERM), "one more signal"):
            with self.subTest(number.name):
                scratch = self.folder / "scratch"
                process, child = self.tune_and_its_child(scratch)
                done = cli.stop(process, number)
                self.assertEqual(done.returncode, 130, done.stderr)
                self.assertIn(f"stopped by {number.name} before it was complete; nothing was written", cli.error_of(done))
                self.assertFalse(self.is_running(child))
                self.assertEqual(list(scratch.iterdir()), [])

    def test_a_child_does_not_outlive_a_tuner_that_was_killed(self):
        process, child = self.tune_and_its_child(self.folder / "scratch")
        process.kill()
        process.communicate()
        until = time.monotonic() + cli.PATIENCE_S
        while self.is_running(child) and time.monotonic() < until:
            time.sleep(0.05)
        self.assertFalse(self.is_running(child))

    def test_a_killed_child_is_told_by_its_signal(self):
        process, child = self.tune_and_its_child(self.folder / "scratch")
        os.kill(child, signal.SIGKILL)
        done = cli.finish(process)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("measuring the layers failed: signal 9 (Killed) ended its process", cli.error_of(done))

    def test_planning_ends_within_its_budget_and_says_what_it_left_out(self):
        run_dir = self.folder / "run"
        config = self.configuration(train={"steps": 1}, pipeline={"chunks": "auto", "planning_budget_s": 1e-6})
        done = cli.finish(self.start(run_dir, config))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r'"auto": 1 is used \(1: [0-9.]+ ms\); 2 and 4 were not tried within '
                                      "pipeline.planning_budget_s")

    def test_nohup_keeps_a_run_from_hanging_up(self):
        run_dir = self.folder / "run"
        process = self.start_and_wait_for_a_step(run_dir, hang_up=signal.SIG_IGN)
        process.send_signal(signal.SIGHUP)
        before = self.steps_so_far(run_dir)
        cli.wait_until(lambda: self.steps_so_far(run_dir) > before + 20, process)
        done = cli.stop(process)
        self.assertEqual(done.returncode, 130, done.stderr)
        self.assertIn("stopped by SIGTERM", cli.error_of(done))

    def test_a_log_reader_that_goes_away_does_not_end_the_run(self):
        run_dir = self.folder / "run"
        reader, writer = os.pipe()
        process = cli.subprocess.Popen([cli.BINARY, "train", self.configuration(train={"steps": 200}), "--run-dir", run_dir],
                                       env=cli.environment_without_launchers(), stderr=writer)
        os.close(writer)
        os.read(reader, 10)
        os.close(reader)
        self.assertEqual(process.wait(timeout=cli.PATIENCE_S), 0)
        self.assertEqual(len(cli.events(run_dir, "step")), 200)

    def test_a_stop_is_130_even_when_nobody_reads_why(self):
        run_dir = self.folder / "run"
        process = self.start_and_wait_for_a_step(run_dir)
        process.stderr.close()
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=cli.PATIENCE_S), 130)
        process.stdout.close()
        self.assert_saved_where_it_stopped(run_dir)
        self.assertIn("stopped by SIGINT after step", (run_dir / "log.txt").read_text())

    def test_a_stop_in_the_last_evaluation_loses_nothing_and_the_evaluation_is_made_up_for(self):
        run_dir = self.folder / "run"
        config = self.configuration(data={"samples": 200000}, train={"steps": 2, "eval_batch": 1})
        process = self.start(run_dir, config)
        cli.wait_until(lambda: 2 in cli.checkpoints(run_dir), process)  # saved; 40,000 evaluation batches to come
        done = cli.stop(process)
        self.assertEqual(done.returncode, 130, done.stderr)
        self.assert_saved_where_it_stopped(run_dir)
        self.assertEqual(cli.events(run_dir, "eval"), [])
        again = cli.finish(self.start(run_dir, config, "--resume", "auto", "--set", "train.eval_batch=1000"))
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual([line["samples"] for line in cli.events(run_dir, "eval")], [40000])
        self.assertEqual([line["step"] for line in cli.events(run_dir, "step")], [1, 2])

    def test_a_log_that_nobody_reads_does_not_stop_the_run(self):
        run_dir = self.folder / "run"
        config = self.configuration(train={"steps": 1000}, log={"every": 1})  # more lines than a pipe holds
        process = self.start(run_dir, config)
        self.assertEqual(process.wait(timeout=cli.PATIENCE_S), 0)
        self.assertEqual(self.steps_so_far(run_dir), 1000)
        self.assertGreater(len((run_dir / "log.txt").read_text()), 100_000)
        process.communicate()


class ByTheClockTest(StopCase):
    """What a machine that is busy with something else would change."""

    def test_a_stop_that_is_sent_twice_is_one(self):
        run_dir = self.folder / "run"
        process = self.start_and_wait_for_a_step(run_dir)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        done = cli.stop(process, signal.SIGTERM)
        self.assertEqual(done.returncode, 130, done.stderr)
        self.assert_saved_where_it_stopped(run_dir)

    def test_a_second_signal_ends_it_at_once_and_says_so(self):
        run_dir = self.folder / "run"
        # One step of many seconds, within which both signals fall.
        config = self.configuration(data={"samples": 4000000, "workers": 0}, train={"global_batch": 4000000})
        process = self.start(run_dir, config)
        metrics = run_dir / "metrics.jsonl"
        cli.wait_until(lambda: metrics.exists() and '"event":"plan"' in metrics.read_text(), process)
        process.send_signal(signal.SIGINT)
        time.sleep(1.5)
        done = cli.stop(process, signal.SIGTERM)
        self.assertEqual(done.returncode, 128 + signal.SIGTERM, done.stderr)
        self.assertIn("stopped at once by a second signal, without saving", done.stderr)

    def test_a_pause_of_the_whole_process_is_no_hung_step(self):
        run_dir = self.folder / "run"
        process = self.start(run_dir, self.configuration(train={"step_timeout_s": 1}))
        cli.wait_until(lambda: self.steps_so_far(run_dir) > 0, process)
        process.send_signal(signal.SIGSTOP)
        time.sleep(2.5)
        before = self.steps_so_far(run_dir)
        process.send_signal(signal.SIGCONT)
        cli.wait_until(lambda: self.steps_so_far(run_dir) > before + 20, process)
        self.assertEqual(cli.stop(process).returncode, 130)


if __name__ == "__main__":
    unittest.main(verbosity=2)
