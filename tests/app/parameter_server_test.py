#!/usr/bin/env python3
"""Runs on a parameter server in virtual time: what they learn, record and refuse. Exits 77 without safetensors.

    parameter_server_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import json
import pathlib
import tempfile
import unittest

import long_tests
import sluice_cli as cli
from server_runs import BATCH, SAMPLES, STALL, WORKERS
from server_runs import virtual_configuration as configuration

import numpy
from safetensors.numpy import load_file


def pushes_by_step(run_dir):
    steps = {}
    for push in cli.events(run_dir, "push"):
        steps.setdefault(push["step"], []).append(push)
    return steps


class ParameterServerTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def train(self, config, name, *arguments):
        run_dir = self.folder / name
        return run_dir, cli.must_run("train", config, "--run-dir", run_dir, *arguments)

    def assert_same_tensors(self, one, other):
        for file in ("model.safetensors", "optimizer.safetensors"):
            ours, theirs = (load_file(run / file) for run in (one, other))
            self.assertEqual(sorted(ours), sorted(theirs))
            for name in ours:
                difference = numpy.abs(numpy.asarray(ours[name], float) - numpy.asarray(theirs[name], float)).max()
                self.assertLessEqual(difference, 1e-8 * max(1e-3, numpy.abs(theirs[name]).max()), name)

    def test_bulk_synchronous_workers_learn_what_one_device_learns(self):
        plain, _ = self.train(configuration(self.folder, None, replicas={"sync": "none"}), "plain")
        for shards in long_tests.some((3,), (1, 3), "one shard"):
            run_dir, _ = self.train(configuration(self.folder, {"policy": "bsp", "shards": shards, **STALL}), f"bsp{shards}")
            for name in ("loss", "samples", "epoch", "lr", "gradient_norm", "top1"):
                for ours, theirs in zip(cli.column(run_dir, name), cli.column(plain, name), strict=True):
                    self.assertLessEqual(abs(ours - theirs), 1e-9 * max(abs(theirs), 1e-9), name)
            evals = [cli.column(run, "loss", "eval") for run in (run_dir, plain)]
            for ours, theirs in zip(*evals, strict=True):
                self.assertLessEqual(abs(ours - theirs), 1e-9 * theirs)
            self.assert_same_tensors(cli.checkpoints(run_dir)[9], cli.checkpoints(plain)[9])
            for step, pushes in pushes_by_step(run_dir).items():
                self.assertEqual([push["worker"] for push in pushes], list(range(WORKERS)))
                self.assertEqual({push["version"] for push in pushes}, {step - 1})

    def test_a_repeat_gives_the_same_bits(self):
        config = configuration(self.folder, {"policy": "asp", **STALL}, train={"steps": 20})
        one, other = (self.train(config, name)[0] for name in ("one", "other"))
        self.assertEqual(cli.column(one, "loss"), cli.column(other, "loss"))
        for name in ("worker", "staleness", "virtual_s"):
            self.assertEqual(cli.column(one, name, "push"), cli.column(other, name, "push"))
        model = [(cli.checkpoints(run)[20] / "model.safetensors").read_bytes() for run in (one, other)]
        self.assertEqual(*model)
        self.assertGreater(max(cli.column(one, "staleness", "push")), 3)
        another, _ = self.train(config, "another", "--set", "train.seed=4")
        self.assertNotEqual(cli.column(one, "virtual_s", "push"), cli.column(another, "virtual_s", "push"))

    def test_nobody_is_further_ahead_than_the_bound(self):
        """By the records alone: each push begins at the arrival of the worker's last one, plus what it was idle."""
        for bound in long_tests.some((2,), (0, 2), "in step"):
            run_dir, _ = self.train(configuration(
                self.folder, {"policy": "ssp", "staleness": bound, **STALL}, train={"steps": 60}), f"ssp{bound}")
            pushed = dict.fromkeys(range(WORKERS), 0)
            for push in cli.events(run_dir, "push"):
                pushed[push["worker"]] += 1
                self.assertEqual(push["sequence"], pushed[push["worker"]])
                self.assertLessEqual(max(pushed.values()) - min(pushed.values()), bound + 1)
            self.assertGreater(sum(cli.column(run_dir, "idle_s", "push")), 0)

    def test_anytime_workers_push_what_they_had_time_for(self):
        limit, slices = 1.0, 4
        amb = {"policy": "amb", "time_limit_s": limit, "partitions": slices, "sample_s": 0.1, "step_s": 0.05, "induce": "ec2"}
        run_dir, _ = self.train(configuration(self.folder, amb, train={"steps": 40}, pipeline={"chunks": 1}), "amb")
        sizes = {}
        for step, pushes in pushes_by_step(run_dir).items():
            sizes[step] = sum(push["examples"] for push in pushes)
            for push in pushes:
                worked = push["compute_s"] - push["sleep_s"]
                slices_run = (worked - 0.1 * push["examples"]) / 0.05
                self.assertAlmostEqual(slices_run, round(slices_run), 5)
                self.assertIn(round(slices_run), range(1, slices + 1))
                began_in_time = push["compute_s"] - 0.25 < limit
                self.assertTrue(began_in_time or push["examples"] <= BATCH // slices, push)
        self.assertEqual([sizes[step] for step in range(1, 41)], cli.column(run_dir, "samples"))
        self.assertGreater(len(set(cli.column(run_dir, "examples", "push"))), 2)
        # An epoch is over when all of it has been pushed: what workers had no time for has come back before.
        epochs = cli.column(run_dir, "epoch")
        for index, epoch in enumerate(epochs):
            self.assertGreaterEqual(sum(sizes[step] for step in range(1, index + 1)), epoch * SAMPLES)
        self.assertGreater(max(epochs), 2)
        self.assertEqual(epochs, sorted(epochs))
        self.assertEqual(cli.column(run_dir, "epoch", "eval")[:3], [0, 1, 2], "after each epoch")
        report = json.loads(cli.must_run("report", run_dir, "--json").stdout)["runs"][0]
        self.assertEqual((report["ps"]["clock"], [worker["worker"] for worker in report["workers"]]),
                         ("virtual", list(range(WORKERS))))
        self.assertEqual(sum(worker["examples"] for worker in report["workers"]), sum(sizes.values()))

    @long_tests.only("28 s")
    def test_compressed_runs_learn_what_others_do_and_send_less(self):
        """What is left out comes later: the loss at the end is near, while a tenth of the bytes travels."""
        train = {"steps": 60, "optimizer": "momentum", "lr": 0.03, "lr_schedule": "constant", "clip_norm": 1.0}
        speed = {"policy": "bsp", "bytes_per_s": 1e6}
        kinds = {"none": {}, "bf16": {"push_compression": "bf16", "pull_compression": "bf16"},
                 "topk": {"push_compression": "topk", "pull_compression": "topk", "topk_ratio": 0.05}}
        ends, sent = {}, {}
        for name, keys in kinds.items():
            run_dir, _ = self.train(configuration(self.folder, {**speed, **keys}, train=train), name)
            losses = cli.column(run_dir, "loss")
            ends[name] = sum(losses[-12:]) / 12
            self.assertLess(ends[name], losses[0] - 0.2)
            pushes = cli.events(run_dir, "push")
            sent[name] = pushes[-1]["bytes"]
            for push in pushes:
                self.assertAlmostEqual(push["send_s"], push["bytes"] / 1e6, 9)
            self.assertEqual(cli.events(run_dir, "ps")[0]["push_compression"], name)
        shares = {"bf16": (0.01, 2 / 8), "topk": (0.05, 0.05 * 12 / 8)}
        for name in ends.keys() - {"none"}:
            nearly, share = shares[name]
            self.assertAlmostEqual(ends[name], ends["none"], delta=nearly)
            self.assertAlmostEqual(sent[name] / sent["none"], share, 2)
        # Each worker's own steps, of which what has moved is sent.
        diloco = {"policy": "diloco", "local_steps": 3, "push_compression": "bf16", "pull_compression": "topk"}
        run_dir, _ = self.train(configuration(self.folder, diloco, train={"steps": 4}), "diloco")
        self.assertLess(cli.column(run_dir, "loss")[-1], cli.column(run_dir, "loss")[0])

    def test_batch_norm_trains_and_the_checkpoint_is_the_servers(self):
        config = configuration(self.folder, {"policy": "asp", **STALL}, model={"name": "resnet8", "image_size": 16},
                               train={"steps": 12, "eval_every_steps": 6})
        run_dir, _ = self.train(config, "run")
        evals = cli.events(run_dir, "eval")
        self.assertEqual([line["step"] for line in evals], [6, 12])
        again = json.loads(cli.must_run("eval", config, "--checkpoint", cli.checkpoints(run_dir)[12], "--json").stdout)
        self.assertAlmostEqual(again["loss"], evals[-1]["loss"], 9)

    def test_what_cannot_be_is_refused(self):
        ranks = cli.finish_all(cli.start_ranks(2, "train", configuration(self.folder, {}), "--run-dir", self.folder / "two"))
        self.assertEqual([process.returncode for process in ranks], [2, 2])
        self.assertIn("one process", cli.error_of(ranks[0]))
        refused = [
                (["replicas.sync=allreduce"], "[ps] is set"),
                (["train.steps=0", "train.epochs=1"], "set train.steps"),
                (["replicas.local=2"], "set replicas.local=1"),
                (["ps.policy=amb"], "needs ps.time_limit_s"),
                (["ps.time_limit_s=1", "pipeline.schedule=zb-h1"], "1f1b"),
                (["ps.partitions=3"], "remove pipeline.chunks"),
                (["ps.worker_batch=1"], "too few for 2 micro-batches"),
                (["ps.workers=64"], "a worker's step has 0 samples"),
                (["pipeline.chunks=1", "train.micro_batch=9"], "too few for train.micro_batch=9"),
                (["pipeline.batch_norm=deferred"], "set \"micro\""),
                (["ps.quorum=5"], "ps.quorum=5, but ps.workers=4"),
                (["freeze.policy=linear"], "remove freeze.policy"),
                (["ps.address=127.0.0.1:1"], "remove ps.placement, ps.address, ps.keys and ps.servers"),
                (["ps.clock=real", "ps.sample_s=1"], "remove them with ps.clock=\"real\""),
                (["ps.push_compression=bf16", "ps.policy=local_sgd"], "whose workers push weights"),
                (["ps.pull_compression=topk", "ps.policy=dual_batch"], "whose workers push weights"),
                (["ps.pull_compression=topk", "ps.topk_ratio=0"], "must be > 0.0 and <= 1.0"),
                (["ps.topk_ratio=0.1"], "remove it")]
        for words, text in long_tests.some(refused[::4], refused, "one of four"):
            with self.subTest(words):
                sets = [word for setting in words for word in ("--set", setting)]
                done = cli.run("train", configuration(self.folder, {}), "--run-dir", self.folder / "none", *sets)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(text, cli.error_of(done))
                self.assertFalse((self.folder / "none").exists())
        done = cli.run("train", configuration(self.folder, {}), "--run-dir", self.folder / "none", "--resume", "auto")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("a run in virtual time cannot resume", cli.error_of(done))


if __name__ == "__main__":
    unittest.main(verbosity=2)
