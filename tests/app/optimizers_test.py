#!/usr/bin/env python3
"""Training runs against torch.optim and its schedulers over many steps: weights, optimizer state and rates, also across a
resume; and evaluation on a part of the test set. Exits 77 without safetensors.

    optimizers_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import pathlib
import struct
import tempfile
import unittest

import torch
from torch.nn import functional as F

import sluice_cli as cli
import torch_models

try:
    from safetensors.torch import load_file, save_file
except ModuleNotFoundError as missing:
    print(f"skipped: {missing}")
    raise SystemExit(77) from None

SAMPLES, TEST_SAMPLES, STEPS, SIDE = 24, 20, 30, 28
MEAN, DEVIATION = 0.1307, 0.3081  # of MNIST, as everybody has them
LR, EVERY, DECAY = 0.01, 7, 0.93


def write_mnist(folder):
    """Random images in MNIST's files; returns what a model gets of both sets, the training set first."""
    generator = torch.Generator().manual_seed(5)
    sets = []
    for split, count in (("train", SAMPLES), ("t10k", TEST_SAMPLES)):
        images = torch.randint(0, 256, (count, SIDE, SIDE), generator=generator, dtype=torch.uint8)
        targets = torch.randint(0, 10, (count,), generator=generator, dtype=torch.uint8)
        for name, tensor in (("images-idx3", images), ("labels-idx1", targets)):
            head = bytes((0, 0, 8, tensor.dim())) + struct.pack(f">{tensor.dim()}I", *tensor.shape)
            (folder / f"{split}-{name}-ubyte").write_bytes(head + tensor.numpy().tobytes())
        sets.append(((images.double() / 255 - MEAN).div(DEVIATION).unsqueeze(1), targets.long()))
    return sets


class OptimizersTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.data, self.test = write_mnist(self.folder)
        torch.manual_seed(1)
        torch.set_num_threads(1)
        self.twin = torch_models.Mlp(pixels=SIDE * SIDE)
        save_file(self.twin.state_dict(), self.folder / "weights.safetensors")
        self.twin.double()

    def configuration(self, name, **train):
        """A step has all samples, so that their order plays no part."""
        return cli.write_config(
            self.folder / name,
            device={"list": "cpu"},
            model={"name": "mlp", "weights": str(self.folder / "weights.safetensors")},
            data={"name": "mnist", "path": str(self.folder)},
            train={"steps": STEPS, "global_batch": SAMPLES, "precision": "fp64", "lr": LR, "lr_schedule": "step",
                   "lr_decay_every": EVERY, "lr_decay": DECAY, "eval_every_steps": STEPS, **train},
            pipeline={"stages": 2, "chunks": 2})

    def train(self, config, name, *arguments):
        run_dir = self.folder / name
        cli.must_run("train", config, "--run-dir", run_dir, *arguments)
        return run_dir

    def train_twin(self, optimizer):
        """Returns the rate of each step."""
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, EVERY, gamma=DECAY)
        rates = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            F.cross_entropy(self.twin(self.data[0]), self.data[1]).backward()
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return rates

    def assert_near(self, ours, theirs):
        self.assertEqual(ours.shape, theirs.shape)
        self.assertLessEqual((ours - theirs).norm().item(), 1e-9 * theirs.norm().item())

    def test_rmsprop_and_a_rate_that_falls_every_so_many_steps_are_torchs(self):
        keys = {"optimizer": "rmsprop", "rms_alpha": 0.95, "eps": 1e-5, "weight_decay": 0.02}
        config = self.configuration("rmsprop.toml", **keys)
        run_dir = self.train(config, "whole")
        optimizer = torch.optim.RMSprop(self.twin.parameters(), lr=LR, alpha=0.95, eps=1e-5, weight_decay=0.02)
        before = {name: value.clone() for name, value in self.twin.state_dict().items()}
        rates = self.train_twin(optimizer)
        for ours, theirs in zip(cli.column(run_dir, "lr"), rates, strict=True):
            self.assertAlmostEqual(ours, theirs, delta=1e-15)
        last = cli.checkpoints(run_dir)[STEPS]
        model, state = load_file(last / "model.safetensors"), load_file(last / "optimizer.safetensors")
        for name, parameter in self.twin.named_parameters():
            self.assert_near(model[name], parameter.detach())
            self.assertGreater((model[name] - before[name]).norm().item(), 0.01 * before[name].norm().item())
            self.assert_near(state.pop(f"square_avg/{name}"), optimizer.state[parameter]["square_avg"])
        self.assertEqual(state, {})

        half = self.train(config, "half", "--set", "train.steps=13", "--set", "train.eval_every_steps=0")
        self.train(config, "half", "--resume", half, "--set", f"train.steps={STEPS}")
        for file in ("model.safetensors", "optimizer.safetensors"):
            self.assertEqual((cli.checkpoints(half)[STEPS] / file).read_bytes(), (last / file).read_bytes())
        self.assertEqual(cli.column(half, "lr"), cli.column(run_dir, "lr"))

    def test_evaluation_on_the_first_samples_of_the_test_set(self):
        config = self.configuration("eval.toml", steps=2, global_batch=5)
        for limit, data_limit, samples in ((7, 0, 7), (7, 6, 6), (99, 0, TEST_SAMPLES)):
            with self.subTest(limit=limit, data_limit=data_limit):
                run_dir = self.train(config, f"limit-{limit}-{data_limit}", "--set", f"train.eval_limit={limit}",
                                     "--set", f"data.limit={data_limit}")
                self.assertEqual(cli.column(run_dir, "samples", "eval"), [samples])
                self.twin.load_state_dict(load_file(cli.checkpoints(run_dir)[2] / "model.safetensors"))
                inputs, targets = (tensor[:samples] for tensor in self.test)
                loss = F.cross_entropy(self.twin(inputs), targets).item()
                self.assertAlmostEqual(cli.column(run_dir, "loss", "eval")[0], loss, delta=1e-9)


if __name__ == "__main__":
    unittest.main(verbosity=2)
