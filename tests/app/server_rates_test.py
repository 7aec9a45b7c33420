#!/usr/bin/env python3
"""The learning rate and the momentum of a parameter server, in virtual time. Exits 77 without safetensors.

    server_rates_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import pathlib
import tempfile
import unittest

import long_tests
import sluice_cli as cli
from server_runs import BATCH, STALL, WORKERS
from server_runs import virtual_configuration as configuration

import numpy
from safetensors.numpy import load_file

LR, EVERY, DECAY, STEPS = 0.02, 5, 0.93, 40
FALLS = {"optimizer": "sgd", "weight_decay": 0, "lr": LR, "lr_schedule": "step", "lr_decay_every": EVERY, "lr_decay": DECAY,
         "steps": STEPS, "eval_every_steps": STEPS}
AMB = {"policy": "amb", "time_limit_s": 1.0, "partitions": 4, "sample_s": 0.1, "step_s": 0.05, "induce": "ec2"}


def weights(run_dir, step, file="model.safetensors"):
    return {name: numpy.asarray(value, float) for name, value in load_file(cli.checkpoints(run_dir)[step] / file).items()}


class ServerRatesTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def train(self, name, config, *sets):
        run_dir = self.folder / name
        cli.must_run("train", config, "--run-dir", run_dir, *(word for value in sets for word in ("--set", value)))
        return run_dir

    def rates_of(self, run_dir, place_of):
        """place_of(updates before, examples before): where the schedule is."""
        examples = 0
        for step, (lr, samples) in enumerate(zip(cli.column(run_dir, "lr"), cli.column(run_dir, "samples"))):
            self.assertAlmostEqual(lr, LR * DECAY ** (place_of(step, examples) // EVERY), delta=1e-15)
            examples += samples
        return examples

    @long_tests.only("11 s")
    def test_a_rate_by_examples_falls_by_what_was_learned_from(self):
        config = configuration(self.folder, {**AMB, "lr_by": "examples"}, train=FALLS, pipeline={"chunks": 1})
        whole = WORKERS * BATCH
        run_dir = self.train("examples", config)
        examples = self.rates_of(run_dir, lambda _, examples: examples // whole)
        self.assertLess(examples, 0.9 * STEPS * whole, "else the time limit cuts too little to tell")
        by_updates = self.train("updates", config, "ps.lr_by=updates")
        self.rates_of(by_updates, lambda updates, _: updates)
        self.assertLess(cli.column(by_updates, "lr")[-1], cli.column(run_dir, "lr")[-1])

    def test_the_recorded_rate_is_what_the_server_moves_the_weights_by(self):
        config = configuration(self.folder, {**AMB, "lr_by": "examples"}, pipeline={"chunks": 1},
                               train={**FALLS, "steps": 12, "lr_decay_every": 1, "lr_decay": 0.5, "clip_norm": 1e6})
        run_dir = self.train("moves", config, "checkpoint.every_steps=1", "checkpoint.keep=20")
        before, rates = weights(run_dir, 1), cli.column(run_dir, "lr")
        for step, (lr, norm) in enumerate(zip(rates, cli.column(run_dir, "gradient_norm")), start=1):
            if step == 1:
                continue
            after = weights(run_dir, step)
            moved = sum(((after[name] - before[name]) ** 2).sum() for name in after) ** 0.5
            self.assertAlmostEqual(moved / (lr * norm), 1, delta=1e-6)
            before = after
        self.assertGreater(len(set(rates)), 4)
        self.assertLess(len(set(rates)), 12, "some updates have too few examples to let the rate fall")

    def test_whole_batches_count_as_updates(self):
        for policy in long_tests.some(("asp",), ("fmb", "asp"), "one policy"):
            config = configuration(self.folder, {"policy": policy, **STALL, "lr_by": "examples"}, train={**FALLS, "steps": 20})
            self.rates_of(self.train(policy, config), lambda updates, _: updates)

    def test_delayed_nesterov(self):
        """Of every push it is Nesterov's own; of more it is not, and its sum is in the checkpoint. Rule: optim_test."""
        config = configuration(self.folder, {"policy": "asp", **STALL}, train={
            "optimizer": "momentum", "nesterov": True, "steps": 18, "eval_every_steps": 18})
        plain, each, fourth = (self.train(f"delay{delay}", config, f"ps.nesterov_delay={delay}") for delay in (0, 1, 4))
        expected, same, other = (weights(run, 18) for run in (plain, each, fourth))
        for name, value in expected.items():
            self.assertLessEqual(numpy.abs(same[name] - value).max(), 1e-10, name)
        self.assertGreater(max(numpy.abs(other[name] - expected[name]).max() for name in expected), 1e-5)
        sums = {name: value for name, value in weights(fourth, 18, "optimizer.safetensors").items() if name.startswith("gradient_sum/")}
        self.assertEqual(len(sums), sum(name.startswith("momentum_buffer/") for name in weights(plain, 18, "optimizer.safetensors")))
        self.assertGreater(max(numpy.abs(value).max() for value in sums.values()), 0, "of two pushes since the last momentum")
        refused = ((["ps.policy=bsp"], "it is for \"asp\", \"ssp\""), (["ps.policy=diloco"], "with ps.quorum=1"),
                   (["ps.policy=diloco", "ps.quorum=1", "ps.outer_momentum=0"], "set ps.outer_momentum"), (["train.nesterov=false"], "set train.optimizer"),
                   (["train.optimizer=adam", "train.nesterov=false"], "set train.optimizer"))
        for words, text in long_tests.some(refused[::3], refused, "one of three"):
            done = cli.run("train", config, "--run-dir", self.folder / "none", "--set", "ps.nesterov_delay=4",
                           *(word for setting in words for word in ("--set", setting)))
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(text, cli.error_of(done))

    def test_delayed_nesterov_of_what_workers_have_moved(self):
        """Asynchronous DiLoCo, which it was made for; the delay is the outer optimizer's alone."""
        config = configuration(self.folder, {"policy": "diloco", "quorum": 1, "local_steps": 2, **STALL}, train={
            "optimizer": "momentum", "nesterov": True, "steps": 9, "eval_every_steps": 9, "clip_norm": 0})
        plain, each, third = (weights(self.train(f"delay{delay}", config, f"ps.nesterov_delay={delay}"), 9) for delay in (0, 1, 3))
        for name, value in plain.items():
            self.assertLessEqual(numpy.abs(each[name] - value).max(), 1e-9, name)
        self.assertGreater(max(numpy.abs(third[name] - plain[name]).max() for name in plain), 1e-5)
        state = weights(self.folder / "delay3", 9, "optimizer.safetensors")
        self.assertEqual([name for name in state if name.startswith("gradient_sum/")], [], "of its workers, whose own steps are plain")


if __name__ == "__main__":
    unittest.main(verbosity=2)
