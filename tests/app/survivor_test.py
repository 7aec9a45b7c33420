#!/usr/bin/env python3
"""A rank is killed at a chosen moment of a step: another one saves what was trained, and the run goes on from there as if
nothing had happened.

    survivor_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import signal
import unittest

import long_tests
import ranks_test
import sluice_cli as cli

STEPS = 12


def configuration(folder, **replicas):
    """Batch-norm, whose statistics a step changes before it is over; an average of the weights; no checkpoints on the way."""
    return ranks_test.configuration(
        folder, model={"name": "resnet8", "dropout": 0},
        train={"steps": STEPS, "precision": "fp32", "optimizer": "momentum", "momentum": 0.9, "ema_decay": 0.9},
        pipeline={"stages": 2, "chunks": 2}, replicas=replicas, checkpoint={"every_steps": 0, "keep": 100}, log={"every": 1})


class SurvivorTest(ranks_test.RanksCase):
    def run_killed(self, config, victim, moment):
        """Returns the other one; 2 processes."""
        done = cli.finish_all(self.start(2, config, "--resume", "auto", environments_of={victim: {"SLUICE_KILL_AT": moment}}))
        self.assertEqual(done[victim].returncode, -9, done[victim].stderr)
        survivor = done[1 - victim]
        self.assertEqual(survivor.returncode, 5, survivor.stderr)
        self.assertIn(f"rank {victim} (host ", cli.error_of(survivor))
        self.assertIn("died", cli.error_of(survivor))
        return survivor

    def newest(self):
        return max(cli.checkpoints(self.run_dir))

    def test_no_step_is_lost_whoever_dies_and_the_run_ends_with_the_same_bits(self):
        config = configuration(self.folder)
        whole = self.folder / "whole"
        done = cli.finish_all(cli.start_ranks(2, "train", config, "--run-dir", whole))
        self.assertEqual(self.codes(done), [0, 0], [process.stderr for process in done])
        losses = [f"{epoch['loss']:.4f}" for epoch in cli.events(whole, "epoch")]
        for line in (f"rank 1 of 2: epoch 1 trained, step 5 of 12, loss {losses[0]}\n",
                     f"rank 1 of 2: epoch 2 trained, step 10 of 12, loss {losses[1]}\n", "rank 1 of 2: done after step 12 of 12"):
            self.assertIn(line, done[1].stderr, "a rank that keeps no records shows that it trains")

        survivor = self.run_killed(config, 1, "gradients-summed:4")  # rank 0 has the sum, and finishes the step
        self.assertIn("lost another process: saving the state after step 4", survivor.stderr)
        self.assertEqual(self.newest(), 4)
        self.assertEqual(cli.column(self.run_dir, "step"), [1, 2, 3, 4])

        survivor = self.run_killed(config, 0, "weights-updated:4")  # before it has a record of the step
        self.assertIn("rank 0 is lost: saved the state after step 8 in its place", survivor.stderr)
        self.assertEqual(self.newest(), 8)

        self.run_killed(config, 0, "gradients-summed:3")
        self.assertEqual(self.newest(), 11)

        self.must_run_ranks(2, config, "--resume", "auto")
        for file in ("model.safetensors", "optimizer.safetensors", "ema.safetensors"):
            one, other = (cli.checkpoints(run)[STEPS] / file for run in (whole, self.run_dir))
            self.assertEqual(one.read_bytes(), other.read_bytes(), file)
        known = ranks_test.curve(self.run_dir)
        self.assertEqual(known, [line for line in ranks_test.curve(whole) if line[0] not in (8, 11)],
                         "rank 0 had not written of the steps in which it died")
        self.assertEqual(cli.events(self.run_dir, "eval")[-1]["loss"], cli.events(whole, "eval")[-1]["loss"])

    def stop_one(self, config, victim, then=lambda: None, environments_of=None):
        """Returns the processes when the other one has ended, and the steps that were recorded until then."""
        processes = self.start(2, config, "--resume", "auto", "--set", "train.steps=100000", "--set", "train.lr=1e-6",
                               environments_of=environments_of)
        before = len(cli.events(self.run_dir, "step"))
        cli.wait_until(lambda: len(cli.events(self.run_dir, "step")) > before + 5, processes[0])
        then()
        processes[victim].send_signal(signal.SIGSTOP)
        survivor = cli.finish(processes[1 - victim])
        self.assertEqual(survivor.returncode, 5, survivor.stderr)
        self.assertIn(f"rank {victim} (host ", cli.error_of(survivor))
        return processes, len(cli.events(self.run_dir, "step"))

    @long_tests.only("waits until a rank counts as hung")
    def test_no_step_is_lost_when_one_hangs(self):
        config = configuration(self.folder, hang_timeout_s=5)
        processes, steps = self.stop_one(config, 1)
        processes[1].kill()
        cli.finish(processes[1])
        self.assertIn(f"lost another process: saving the state after step {steps}", processes[0].stderr)
        self.assertEqual(self.newest(), steps)

        processes, steps = self.stop_one(config, 0)
        self.assertIn("could not be saved: run directory", processes[1].stderr)
        self.assertLess(self.newest(), steps, "rank 0 may go on, and has the lock")
        processes[0].send_signal(signal.SIGCONT)
        self.assertEqual(cli.finish(processes[0]).returncode, 5, processes[0].stderr)
        self.assertEqual(self.newest(), len(cli.events(self.run_dir, "step")))

    # std::terminate() ended rank 0 with SIGABRT, and nothing was saved.
    @long_tests.only("waits until a rank counts as hung")
    def test_no_step_is_lost_when_one_hangs_and_the_system_gives_no_more_threads(self):
        config = ranks_test.configuration(self.folder, data={"samples": 100000}, replicas={"hang_timeout_s": 5},
                                          checkpoint={"every_steps": 0}, log={"every": 1})
        no_threads = self.folder / "no_threads"
        poor = cli.poor_machine(SLUICE_TEST_NO_THREADS_IF=str(no_threads))
        processes, steps = self.stop_one(config, 1, then=no_threads.touch, environments_of={0: poor})
        processes[1].kill()
        cli.finish(processes[1])
        self.assertIn(f"lost another process: saving the state after step {steps}", processes[0].stderr)
        self.assertEqual(self.newest(), steps)


if __name__ == "__main__":
    unittest.main(verbosity=2)
