#!/usr/bin/env python3
"""Runs on a parameter server whose workers make steps of their own between pushes: local SGD, DiLoCo, dual batch sizes.
Exits 77 without safetensors.

    local_steps_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import fractions
import math
import pathlib
import tempfile
import unittest

import server_runs
import long_tests
import sluice_cli as cli
from server_runs import BATCH

import numpy
from safetensors.numpy import load_file


def configuration(folder, ps, **tables):
    """At a constant rate, whatever the norm."""
    tables["train"] = {"lr_schedule": "constant", "clip_norm": 0, **tables.get("train", {})}
    return server_runs.configuration(folder, ps, **tables)


class LocalStepsTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def train(self, config, name, *arguments):
        run_dir = self.folder / name
        return run_dir, cli.must_run("train", config, "--run-dir", run_dir, *arguments)

    def train_processes(self, config, size, name, *arguments):
        port = cli.free_port()
        processes = [cli.start("train", config, "--run-dir", self.folder / name, *arguments, env=cli.rank_environment(rank, size, port))
                     for rank in range(size)]
        self.addCleanup(lambda: [process.kill() for process in processes if process.poll() is None])
        done = cli.finish_all(processes)
        for process in done:
            self.assertEqual(process.returncode, 0, process.stderr)
        return self.folder / name, done

    def assert_same_model(self, one, other):
        ours, theirs = (load_file(max(cli.checkpoints(run).items())[1] / "model.safetensors") for run in (one, other))
        self.assertEqual(sorted(ours), sorted(theirs))
        for name in ours:
            difference = numpy.abs(numpy.asarray(ours[name], float) - numpy.asarray(theirs[name], float)).max()
            self.assertLessEqual(difference, 1e-8 * max(1e-3, numpy.abs(theirs[name]).max()), name)

    def test_one_worker_is_plain_training_however_often_it_pushes(self):
        """Its weights take the place of the server's; with an outer rate of 1 what it has moved does the same. A push is
        of three steps; an epoch is 12, so nothing is cut off."""
        rounds, steps = 9, 3
        constant = {"lr_schedule": "constant", "clip_norm": 0.5}
        plain, _ = self.train(configuration(self.folder, None, replicas={"sync": "none"}, train={
            "steps": rounds * steps, "global_batch": BATCH, **constant}), "plain")
        for policy, more in (("local_sgd", {}), ("diloco", {"outer_lr": 1.0, "outer_momentum": 0.0})):
            config = configuration(self.folder, {"clock": "virtual", "policy": policy, "workers": 1, "local_steps": steps,
                                                 **more}, train={"steps": rounds, **constant})
            run_dir, _ = self.train(config, policy)
            self.assert_same_model(run_dir, plain)
            losses = cli.column(plain, "loss")
            for index, loss in enumerate(cli.column(run_dir, "loss")):
                self.assertAlmostEqual(loss, sum(losses[steps * index:steps * (index + 1)]) / steps, 9)
            self.assertEqual(set(cli.column(run_dir, "examples", "push")), {steps * BATCH})

    def test_processes_learn_what_workers_in_virtual_time_learn(self):
        """Which worker has which samples is decided by who comes first, and without momentum it makes no difference."""
        for policy in long_tests.some(("diloco",), ("local_sgd", "diloco"), "one with an outer optimizer"):
            of_both = {"policy": policy, "local_steps": 2}
            train = {"steps": 6, "optimizer": "sgd", "lr": 0.05}
            virtual, _ = self.train(configuration(self.folder, {"clock": "virtual", "workers": 2, **of_both}, train=train),
                                    f"virtual-{policy}")
            real, _ = self.train_processes(configuration(self.folder, of_both, train=train), 3, f"real-{policy}")
            self.assert_same_model(real, virtual)
            for name in ("loss", "samples", "lr"):
                for ours, theirs in zip(cli.column(real, name), cli.column(virtual, name), strict=True):
                    self.assertLessEqual(abs(ours - theirs), 1e-9 * abs(theirs), name)

    @long_tests.only("8 s")
    def test_a_server_that_goes_on_has_its_outer_optimizer(self):
        """The workers' own is plain SGD here: what else they had would be lost with them."""
        train = {"steps": 6, "optimizer": "sgd", "lr": 0.05}
        config = configuration(self.folder, {"policy": "diloco", "local_steps": 2}, train=train)
        whole, done = self.train_processes(config, 3, "whole")
        for push in cli.events(whole, "push"):
            epoch = cli.column(whole, "epoch")[push["step"] - 1]
            self.assertIn(f"Epoch {epoch + 1} BS {BATCH} LR 0.05: worker {push['worker']}, push {push['sequence']}, ", done[0].stderr)
        self.train_processes(config, 3, "parts", "--set", "train.steps=3")
        parts, _ = self.train_processes(config, 3, "parts", "--resume", "auto")
        self.assertEqual(cli.column(parts, "step"), list(range(1, 7)))
        self.assert_same_model(parts, whole)
        momentum = load_file(cli.checkpoints(parts)[6] / "optimizer.safetensors")
        self.assertTrue(momentum and all(name.startswith("momentum_buffer/") for name in momentum), list(momentum)[:3])

    def test_dual_batch_sizes_share_an_epoch_as_their_formulas_say(self):
        """Lu et al., COMPSAC 2022, worked out in fractions: everybody takes its share once an epoch, in the time that was
        allowed, and weighs by it."""
        workers, small, base, samples, extra = 4, 3, 100, 2000, fractions.Fraction("1.05")
        a, b = fractions.Fraction("0.001"), fractions.Fraction("0.03")
        of_large = math.floor(extra * samples / workers)
        of_small = math.floor(fractions.Fraction(samples - of_large * (workers - small), small))
        time_allowed = extra * (a + b / base) * samples / workers
        small_batch = math.floor(b / (time_allowed / of_small - a))
        epochs = 3
        config = configuration(
            self.folder, {"clock": "virtual", "policy": "dual_batch", "workers": workers, "small_workers": small,
                          "worker_batch": base, "sample_s": float(a), "step_s": float(b)},
            model={"name": "mlp"}, data={"samples": samples}, pipeline={"stages": 1, "chunks": 1},
            train={"steps": epochs * workers, "lr": 0.05, "lr_schedule": "step", "lr_decay_every": 3, "lr_decay": 0.5,
                   "precision": "fp32"})
        run_dir, done = self.train(config, "dual")
        self.assertIn(f"Epoch 1 BS {small_batch} LR 0.05: worker 3, push 1, ", done.stderr)
        epochs_of = dict(zip(cli.column(run_dir, "step"), cli.column(run_dir, "epoch")))
        rates_of = dict(zip(cli.column(run_dir, "step"), cli.column(run_dir, "lr")))
        for push in cli.events(run_dir, "push"):  # each makes an update
            rate = 0.05 * 0.5 ** (push["version"] // 3)
            self.assertAlmostEqual(push["lr"], rate, delta=1e-12)
            self.assertEqual(rates_of[push["step"]], push["lr"], "the rate of a step is the one that its worker used")
            batch = base if push["worker"] < workers - small else small_batch
            self.assertIn(f"Epoch {epochs_of[push['step']] + 1} BS {batch} LR {push['lr']:g}: worker {push['worker']}, "
                          f"push {push['sequence']}, ", done.stderr)
        self.assertTrue(any(push["staleness"] > 1 for push in cli.events(run_dir, "push")), "or this shows nothing")
        shares = {}
        for push in cli.events(run_dir, "push"):
            shares.setdefault(push["worker"], []).append(push)
        left = samples - of_large - small * of_small  # by rounding; the last one of an epoch takes it
        for worker, pushes in shares.items():
            self.assertEqual(len(pushes), epochs)
            share, batch = (of_large, base) if worker < workers - small else (of_small, small_batch)
            for push in pushes:
                self.assertIn(push["examples"] - share, (0, left))
                steps = math.floor(fractions.Fraction(push["examples"], batch) + fractions.Fraction(1, 2))
                self.assertAlmostEqual(push["compute_s"], float(a * push["examples"] + b * steps), 6)
                self.assertLessEqual(push["compute_s"], 1.02 * float(time_allowed))
        self.assertEqual(sum(cli.column(run_dir, "examples", "push")), epochs * samples)
        losses = cli.column(run_dir, "loss")
        self.assertLess(losses[-1], 0.8 * losses[0])

    def test_dual_batch_sizes_with_processes(self):
        """2001 samples: 700 for the large worker, 650 for each small one, and the one that is left goes with the last share."""
        config = configuration(
            self.folder, {"policy": "dual_batch", "small_workers": 2, "worker_batch": 100, "sample_s": 0.001, "step_s": 0.03,
                          "merge": "besides"},
            model={"name": "mlp"}, data={"samples": 2001}, pipeline={"stages": 1, "chunks": 1},
            train={"steps": 18, "lr": 0.05, "optimizer": "momentum", "precision": "fp32"})
        run_dir, _ = self.train_processes(config, 4, "dual")
        pushes = cli.events(run_dir, "push")
        first = [next(push["examples"] for push in pushes if push["worker"] == worker) for worker in range(3)]
        self.assertEqual(sorted(size - share for size, share in zip(first, (700, 650, 650))), [0, 0, 1])
        self.assertEqual(cli.column(run_dir, "step"), list(range(1, 19)))
        self.assertLess(cli.column(run_dir, "loss")[-1], 0.8 * cli.column(run_dir, "loss")[0])

    def test_what_cannot_be_is_refused(self):
        dual = ["ps.policy=dual_batch", "ps.step_s=0.03", "ps.worker_batch=24", "ps.small_workers=1"]
        refused = [
                (["ps.local_steps=3"], "whose workers make no local steps"),
                (["ps.policy=local_sgd", "ps.small_workers=1"], "ps.small_workers is only for ps.policy=\"dual_batch\""),
                (["ps.policy=local_sgd", "ps.outer_lr=0.5"], "ps.outer_lr is only for ps.policy=\"diloco\""),
                (["ps.policy=diloco", "ps.time_limit_s=1"], "whose workers push gradients; remove them"),
                ([*dual, "ps.small_workers=3"], "set ps.small_workers to at most"),
                ([*dual, "ps.step_s=0"], "--b must be above 0"),
                (dual, "ps.policy=\"dual_batch\": the small batch would be")]
        for words, text in long_tests.some(refused[::3], refused, "one of three"):
            with self.subTest(words):
                sets = [word for setting in words for word in ("--set", setting)]
                config = configuration(self.folder, {"clock": "virtual", "workers": 2})
                done = cli.run("train", config, "--run-dir", self.folder / "none", *sets)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(text, cli.error_of(done))
                self.assertFalse((self.folder / "none").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
