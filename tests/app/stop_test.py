#!/usr/bin/env python3
"""What a run does when it is told to stop, and when those who read its output go away.

    stop_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import os
import pathlib
import signal
import tempfile
import unittest

import sluice_cli as cli


class StopTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def configuration(self, **changes):
        tables = {"device": {"list": "cpu"}, "model": {"name": "mlp", "image_size": 8},
                  "data": {"name": "shapes", "samples": 65}, "train": {"global_batch": 16, "lr": 0.05, "steps": 1000000}}
        return cli.write_config(self.folder / "small.toml",
                                **{table: {**values, **changes.get(table, {})} for table, values in tables.items()})

    def start(self, run_dir, config, *arguments, **more):
        return cli.start("train", config, "--run-dir", run_dir, *arguments, **more)

    def start_and_wait_for_a_step(self, run_dir, **more):
        process = self.start(run_dir, self.configuration(), **more)
        metrics = run_dir / "metrics.jsonl"
        cli.wait_until(lambda: metrics.exists() and '"step"' in metrics.read_text(), process)
        return process

    def assert_saved_where_it_stopped(self, run_dir):
        steps = [line["step"] for line in cli.events(run_dir, "step")]
        self.assertEqual(max(cli.checkpoints(run_dir)), steps[-1])
        self.assertEqual(cli.events(run_dir, "summary")[-1]["outcome"], "interrupted")

    def test_a_signal_is_130_after_saving(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number.name):
                run_dir = self.folder / number.name
                done = cli.stop(self.start_and_wait_for_a_step(run_dir), number)
                self.assertEqual(done.returncode, 130, done.stderr)
                self.assertIn(f"stopped by {number.name} after step", cli.error_of(done))
                self.assertIn("--resume auto", cli.error_of(done))
                self.assert_saved_where_it_stopped(run_dir)

    def test_nohup_keeps_a_run_from_hanging_up(self):
        run_dir = self.folder / "run"
        process = self.start_and_wait_for_a_step(run_dir, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        process.send_signal(signal.SIGHUP)
        done_before = len(cli.events(run_dir, "step"))
        cli.wait_until(lambda: (run_dir / "metrics.jsonl").read_text().count('"step"') > done_before + 20, process)
        self.assertEqual(cli.stop(process).returncode, 130)

    def test_a_log_reader_that_goes_away_does_not_end_the_run(self):
        run_dir = self.folder / "run"
        reader, writer = os.pipe()
        process = cli.subprocess.Popen([cli.BINARY, "train", self.configuration(train={"steps": 200}), "--run-dir", run_dir],
                                       stderr=writer)
        os.close(writer)
        os.read(reader, 10)
        os.close(reader)
        self.assertEqual(process.wait(timeout=cli.PATIENCE_S), 0)
        self.assertEqual(len(cli.events(run_dir, "step")), 200)

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

    def test_a_second_signal_ends_it_at_once_and_says_so(self):
        run_dir = self.folder / "run"
        process = self.start_and_wait_for_a_step(run_dir)
        os.kill(process.pid, signal.SIGSTOP)  # so that both signals wait for it
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        done = cli.stop(process, signal.SIGCONT)
        self.assertIn(done.returncode, (128 + signal.SIGINT, 128 + signal.SIGTERM), done.stderr)
        self.assertIn("stopped at once by a second signal, without saving", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
