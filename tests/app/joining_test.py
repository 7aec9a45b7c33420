#!/usr/bin/env python3
"""replicas.elastic: a process that starts while the run goes on joins it, and changes no bit.

    joining_test.py [unittest options]        SLUICE_BINARY names the binary; CHANGES: random kills and joins
"""

import os
import random
import signal
import time
import unittest

import long_tests
import sluice_cli as cli
from elastic_runs import ElasticCase

CHANGES = int(os.environ.get("CHANGES", "60" if long_tests.RUN else "3"))


class Run:
    """Processes of one run: each may be started again, with the same command."""

    def __init__(self, config, run, size=3, **popen):
        self.command = ["train", config, "--run-dir", run]
        self.run, self.size, self.port, self.popen = run, size, cli.free_port(), popen
        self.processes = [self.start(rank) for rank in range(size)]
        cli.wait_until(lambda: cli.events(run, "step"), self.processes[0])

    def start(self, rank, *more, **environment):
        return cli.start(*self.command, *more, env=cli.rank_environment(rank, self.size, self.port) | environment, **self.popen)

    def joined(self):
        return cli.column(self.run, "rank", "joined")

    def wait_for_joins(self, count, process):
        cli.wait_until(lambda: len(self.joined()) >= count, process)


class Joining(ElasticCase):
    STEPS = 120

    def test_a_killed_process_joins_again(self):
        for victim in (2, 0):
            with self.subTest(victim=victim):
                run = Run(self.config, self.folder / f"again-{victim}")
                run.processes[victim].kill()
                run.processes.append(run.start(victim))
                done = cli.finish_all(run.processes)
                self.check(run.run, done, [victim])
                self.assertEqual(run.joined(), [3])
                joined, = cli.events(run.run, "joined")
                self.assertGreater(joined["wait_ms"], 0)
                self.assertIn("joins", done[1].stderr)
                self.assertIn("1 process lost, 1 process joined", cli.must_run("report", run.run).stdout)
                self.assertIn("joining the run as process 3", done[3].stderr)

    @long_tests.only("15 s")
    def test_two_new_processes_join_and_one_of_them_goes_on_alone(self):
        run = Run(self.config, self.folder / "more", size=2)
        run.processes += [run.start(rank) for rank in (0, 1)]
        run.wait_for_joins(2, run.processes[0])
        self.assertEqual(sorted(run.joined()), [2, 3])
        for victim in (0, 1, 3):
            run.processes[victim].kill()
        self.check(run.run, cli.finish_all(run.processes), [0, 1, 3])
        self.assertEqual(sorted(run.joined()), [2, 3])
        self.assertIn(sorted(cli.column(run.run, "rank", "lost")), ([0, 1, 2], [0, 1, 3]))  # whichever joined first

    @long_tests.only("8 s")
    def test_a_run_of_one_process_grows_again(self):
        run = Run(self.config, self.folder / "one", size=2)
        run.processes[1].kill()
        cli.wait_until(lambda: cli.events(run.run, "lost"), run.processes[0])
        run.processes.append(run.start(1))
        done = cli.finish_all(run.processes)
        self.check(run.run, done, [1])
        self.assertEqual(run.joined(), [2])

    @long_tests.only("10 s")
    def test_a_meeting_file_leads_to_the_run(self):
        meeting, path = self.folder / "meeting", self.folder / "by-file"
        start = lambda rank: cli.start("train", self.config, "--run-dir", path, "--rank", str(rank), "--world-size", "2",
                                       "--init", f"file://{meeting}")
        processes = [start(rank) for rank in range(2)]
        cli.wait_until(lambda: cli.events(path, "step"), processes[1])
        processes[0].kill()
        cli.wait_until(lambda: cli.events(path, "lost"), processes[1])
        processes.append(start(0))
        self.check(path, cli.finish_all(processes), [0])
        self.assertEqual(cli.column(path, "rank", "joined"), [2])
        self.assertFalse(meeting.exists())

    def test_a_process_with_other_settings_is_refused(self):
        run = Run(self.config, self.folder / "refused")
        done = cli.finish(run.start(2, *cli.options(train={"lr": 3e-3})))
        self.assertEqual(done.returncode, 2)
        self.assertIn("train.lr is 0.003 in this process, but 0.002 in the run that goes on", cli.error_of(done))
        done = cli.finish(run.start(1, *cli.options(replicas={"elastic": False})))
        self.assertEqual(done.returncode, 2)
        self.assertIn("replicas.elastic is false in this process, but true in the run", cli.error_of(done))
        self.check(run.run, cli.finish_all(run.processes), [])
        self.assertEqual(run.joined(), [])

    def test_a_process_that_dies_while_it_joins_disturbs_nobody(self):
        run = Run(self.config, self.folder / "dying")
        rng = random.Random(3)
        for _ in range(CHANGES):
            guest = run.start(1)
            time.sleep(rng.uniform(0.3, 0.9))
            guest.kill()
            cli.finish(guest)
        self.check(run.run, cli.finish_all(run.processes), [])
        self.assertLessEqual(set(cli.column(run.run, "rank", "lost")), set(run.joined()))

    @long_tests.only("20 s")
    def test_a_signal_to_a_waiting_process_ends_only_it(self):
        slow = self.configuration("slow", model={"name": "resnet18", "image_size": 32}, checkpoint={},
                                  train={"steps": 4, "global_batch": 384, "micro_batch": 32, "eval_limit": 16})
        run = Run(slow, self.folder / "signal")  # each step takes seconds
        guest = run.start(1)
        while "waiting for its current step" not in guest.stderr.readline():
            self.assertIsNone(guest.poll())
        guest.send_signal(signal.SIGTERM)
        done = cli.finish(guest)
        self.assertEqual(done.returncode, 130, done.stderr)
        self.assertEqual([process.returncode for process in cli.finish_all(run.processes)], [0, 0, 0])
        self.assertEqual(run.joined(), [])
        self.assertEqual(cli.events(run.run, "lost"), [])

    def test_kills_and_joins_at_random_moments(self):
        rng = random.Random(os.environ.get("CHANGE_SEED", "1"))
        steps = 100 + 60 * CHANGES
        config, reference = self.configuration("random", train={"steps": steps}), self.folder / "long-reference"
        cli.must_run("train", config, "--run-dir", reference)
        run = Run(config, self.folder / "random")
        living, done = list(run.processes), []
        for number in range(CHANGES):
            time.sleep(rng.uniform(0.0, 1.0))
            victim = living.pop(rng.randrange(len(living)))
            victim.kill()
            done.append(cli.finish(victim))
            time.sleep(rng.uniform(0.0, 0.5))
            living.append(run.start(rng.randrange(3)))
            run.wait_for_joins(number + 1, living[-1])
        for process in cli.finish_all(living):
            self.assertEqual(process.returncode, 0, process.stderr[-3000:])
        self.check_bits(run.run, reference, steps)
        self.assertEqual(len(cli.events(run.run, "lost")), CHANGES)


if __name__ == "__main__":
    unittest.main()
