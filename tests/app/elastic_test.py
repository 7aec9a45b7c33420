#!/usr/bin/env python3
"""replicas.elastic: a lost process costs no step and no bit.

    elastic_test.py [unittest options]        SLUICE_BINARY names the binary; KILLS: random kills
"""

import os
import random
import signal
import time
import unittest

import long_tests
import sluice_cli as cli
from elastic_runs import ElasticCase

KILLS = int(os.environ.get("KILLS", "200" if long_tests.RUN else "4"))


class Elastic(ElasticCase):
    def test_a_process_dies_at_a_step(self):
        for number, (victim, at) in enumerate([(2, "gradients-summed:5"), (0, "gradients-summed:9"), (1, "weights-updated:8"),
                                               (0, "weights-updated:3")]):
            with self.subTest(victim=victim, at=at):
                run = self.folder / f"at-{number}"
                done = cli.finish_all(cli.start_ranks(3, "train", self.config, "--run-dir", run,
                                                      environments_of={victim: {"SLUICE_KILL_AT": at}}))
                self.check(run, done, [victim])

    def test_kills_at_random_moments(self):
        rng = random.Random(os.environ.get("KILL_SEED", "1"))
        for number in range(KILLS):
            size = rng.randint(2, 4)
            victims = rng.sample(range(size), rng.randint(1, min(2, size - 1)))
            moments = [rng.uniform(0.0, 2.0) for _ in victims]
            with self.subTest(number=number, size=size, victims=victims, moments=moments):
                run = self.folder / f"kill-{number}"
                processes = cli.start_ranks(size, "train", self.config, "--run-dir", run)
                cli.wait_until(lambda run=run: (run / "metrics.jsonl").exists() and cli.events(run, "step"), processes[0])
                started = time.monotonic()
                for victim, moment in sorted(zip(victims, moments), key=lambda pair: pair[1]):
                    time.sleep(max(0, started + moment - time.monotonic()))
                    processes[victim].kill()
                self.check_kills(run, cli.finish_all(processes), victims)

    def check_kills(self, run, done, victims):
        # A victim may have been done before.
        self.check(run, done, [victim for victim in victims if done[victim].returncode == -9])

    def test_a_stopped_process_does_not_come_back(self):
        run = self.folder / "stopped"
        config = self.configuration("stopped", replicas={"elastic": True, "hang_timeout_s": 5})
        processes = cli.start_ranks(3, "train", config, "--run-dir", run)
        cli.wait_until(lambda: (run / "metrics.jsonl").exists() and cli.events(run, "step"), processes[0])
        processes[1].send_signal(signal.SIGSTOP)
        done = cli.finish_all([processes[0], processes[2]])
        processes[1].send_signal(signal.SIGCONT)
        stopped = cli.finish(processes[1])
        self.check(run, done, [])
        self.assertEqual(stopped.returncode, 5, stopped.stderr)
        self.assertIn("go on without this one", cli.error_of(stopped))
        self.assertEqual([(event["rank"], event["cause"]) for event in cli.events(run, "lost")], [(1, "was silent for 5 s")])

    @long_tests.only("20 s of waiting")
    def test_a_stopped_rank_0_keeps_its_run_directory(self):
        run, elsewhere = self.folder / "held", self.folder / "elsewhere"
        elsewhere.mkdir()
        config = self.configuration("held", replicas={"elastic": True, "hang_timeout_s": 5})
        processes = cli.start_ranks(3, "train", config, "--run-dir", run, cwd=elsewhere)
        cli.wait_until(lambda: (run / "metrics.jsonl").exists() and cli.events(run, "step"), processes[0])
        processes[0].send_signal(signal.SIGSTOP)
        done = cli.finish_all(processes[1:])
        processes[0].send_signal(signal.SIGCONT)
        self.assertEqual(cli.finish(processes[0]).returncode, 5)
        self.assertEqual([process.returncode for process in done], [0, 0], done[0].stderr[-3000:])
        new_run, = (elsewhere / "runs").iterdir()
        self.assertEqual(self.digest_of(new_run), self.digest)

    def test_a_signal_after_a_loss_saves_and_stops(self):
        run = self.folder / "stop"
        config = self.configuration("stop", checkpoint={})
        processes = cli.start_ranks(3, "train", config, "--run-dir", run, environments_of={2: {"SLUICE_KILL_AT": "gradients-summed:5"}})
        cli.finish(processes[2])
        for process in processes[:2]:
            process.send_signal(signal.SIGTERM)
        done = cli.finish_all(processes[:2])
        self.assertEqual([process.returncode for process in done], [130, 130], done[0].stderr[-3000:])
        cli.must_run("train", config, "--run-dir", run, "--resume", "auto")
        self.assertEqual(self.digest_of(run), self.digest)

    @long_tests.only("6 s")
    def test_two_losses_leave_one(self):
        run = self.folder / "two"
        at = {2: {"SLUICE_KILL_AT": "gradients-summed:4"}, 0: {"SLUICE_KILL_AT": "gradients-summed:9"}}
        done = cli.finish_all(cli.start_ranks(3, "train", self.config, "--run-dir", run, environments_of=at))
        self.check(run, done, [0, 2])
        self.assertEqual([event["rank"] for event in cli.events(run, "lost")], [2, 0])

    def test_too_few_processes_save_and_end(self):
        run = self.folder / "few"
        config = self.configuration("few", replicas={"elastic": True, "min": 2}, checkpoint={})
        done = cli.finish_all(cli.start_ranks(2, "train", config, "--run-dir", run,
                                              environments_of={0: {"SLUICE_KILL_AT": "gradients-summed:9"}}))
        self.assertEqual([process.returncode for process in done], [-9, 5])
        self.assertRegex(cli.error_of(done[1]), "one process is left, fewer than replicas.min; the state after step [89] is saved")
        cli.must_run("train", config, "--run-dir", run, "--resume", "auto")
        self.assertEqual(self.digest_of(run), self.digest)

    def test_the_records_say_what_was_lost(self):
        run = self.folder / "said"
        done = cli.finish_all(cli.start_ranks(3, "train", self.config, "--run-dir", run,
                                              environments_of={1: {"SLUICE_KILL_AT": "gradients-summed:5"}}))
        self.check(run, done, [1])
        lost, = cli.events(run, "lost")
        self.assertEqual((lost["rank"], lost["cause"]), (1, "its connection ended"))
        self.assertIn(lost["step"], (5, 6))
        self.assertGreater(lost["next_step_ms"], 0)
        self.assertIn("lost process 1 (host ", done[0].stderr)


if __name__ == "__main__":
    unittest.main()
