#!/usr/bin/env python3
"""Training runs against torch.optim and its schedulers over many steps: weights, optimizer state and rates, also across a
resume; and evaluation on a part of the test set. Exits 77 without safetensors
or timm.

    optimizers_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import itertools
import json
import pathlib
import struct
import tempfile
import unittest

import torch
from torch.nn import functional as F

import long_tests
import sluice_cli as cli
import torch_models

try:
    from safetensors.torch import load_file, save_file
    from timm.optim import Lamb
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

    def test_groups_are_torchs_however_the_run_is_divided(self):
        """The last layer learns faster, and no bias decays."""
        keys = {"optimizer": "adamw", "weight_decay": 0.3, "no_decay": ["bias"], "head_lr": 4.0, "eps": 1e-5}
        config = self.configuration("groups.toml", **keys)
        layers = [module for module in self.twin.modules() if isinstance(module, torch.nn.Linear)]
        groups = [{"params": [parameter], "lr": LR * (4 if layer is layers[-1] else 1),
                   "weight_decay": 0.3 if name == "weight" else 0.0}
                  for layer in layers for name, parameter in layer.named_parameters()]
        self.train_twin(torch.optim.AdamW(groups, eps=1e-5))
        ways = (("replicas", ["replicas.local=2"]), ("stages", []), ("alone", ["pipeline.stages=1"]))
        for name, sets in long_tests.some(ways[:1], ways, "each of them alone"):
            with self.subTest(name):
                words = [word for pair in sets for word in ("--set", pair)]
                run_dir = self.train(config, f"groups-{name}", *words)
                model = load_file(cli.checkpoints(run_dir)[STEPS] / "model.safetensors")
                for key, parameter in self.twin.named_parameters():
                    self.assert_near(model[key], parameter.detach())

    def test_blocks_that_thaw_go_on_as_torchs(self):
        """They freeze, thaw in part, are resumed and thaw, in plans of two stages. An epoch is a step."""
        epochs, keys = 24, {"weight_decay": 0.1, "eps": 1e-5}
        twin = torch_models.ViT("nano", patch=7, image=SIDE, channels=1, eps=torch_models.ViT.OF_TRANSFORMERS)
        save_file(twin.state_dict(), self.folder / "vit.safetensors")
        twin.double()
        config = cli.write_config(
            self.folder / "thaw.toml", device={"list": "cpu"},
            model={"name": "vit", "size": "nano", "patch_size": 7, "weights": str(self.folder / "vit.safetensors")},
            data={"name": "mnist", "path": str(self.folder)},
            train={"epochs": epochs, "global_batch": SAMPLES, "precision": "fp64", "lr": LR, "optimizer": "adamw",
                   "eval_every_epochs": epochs, **keys},
            pipeline={"stages": 2, "chunks": 2},
            freeze={"policy": "schedule", "schedule": ["2: 3", "14: 1", "18: 0"]})
        run_dir = self.train(config, "thaw", "--set", "train.epochs=16")
        self.train(config, "thaw", "--resume", run_dir)
        last = cli.checkpoints(run_dir)[epochs]
        optimizer = torch.optim.AdamW(twin.parameters(), lr=LR, **keys)
        parts = [("vit.embeddings.", "vit.encoder.layer.0."), ("vit.encoder.layer.1.", "vit.encoder.layer.2.")]
        for epoch in range(epochs):
            optimizer.zero_grad()
            F.cross_entropy(twin(self.data[0]), self.data[1]).backward()
            frozen = sum(parts, ()) if 2 <= epoch < 14 else parts[0] if 14 <= epoch < 18 else ()
            for name, parameter in twin.named_parameters():
                if frozen and name.startswith(frozen):
                    parameter.grad = None
            optimizer.step()
        model, state = load_file(last / "model.safetensors"), load_file(last / "optimizer.safetensors")
        counts = json.loads((last / "state.json").read_text(encoding="utf-8"))["optimizer_updates"]
        for name, parameter in twin.named_parameters():
            expected = optimizer.state[parameter]
            self.assertEqual(counts.get(name, epochs), expected["step"].item(), name)
            self.assert_near(model[name], parameter.detach())
            for key in ("exp_avg", "exp_avg_sq"):
                self.assertLessEqual((state[f"{key}/{name}"] - expected[key]).norm().item(), 1e-9, name)

    def test_averaged_weights_are_torchs_and_are_evaluated_and_saved(self):
        keys = {"optimizer": "lamb", "weight_decay": 0.1, "amsgrad": False, "ema_decay": 0.8, "ema_every_steps": 3}
        config = self.configuration("ema.toml", **keys)
        run_dir = self.train(config, "ema")
        average = torch.optim.swa_utils.AveragedModel(
            self.twin, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.8))
        optimizer = Lamb(self.twin.parameters(), lr=LR, weight_decay=0.1, eps=1e-8, max_grad_norm=None)
        optimizer.register_step_post_hook(self.every(3, lambda: average.update_parameters(self.twin)))
        self.train_twin(optimizer)
        last = cli.checkpoints(run_dir)[STEPS]
        saved = load_file(last / "ema.safetensors")
        self.assertEqual(saved.keys(), self.twin.state_dict().keys())
        for name, parameter in average.module.named_parameters():
            self.assert_near(saved[name], parameter.detach())
        record = cli.events(run_dir, "eval")[-1]
        for prefix, model in (("", self.twin), ("ema_", average.module)):
            logits = model(self.test[0])
            self.assertAlmostEqual(record[f"{prefix}loss"], F.cross_entropy(logits, self.test[1]).item(), delta=1e-9)
            right = (logits.argmax(1) == self.test[1]).double().mean().item()
            self.assertAlmostEqual(record[f"{prefix}top1"], 100 * right, delta=1e-9)
        self.assertNotAlmostEqual(record["loss"], record["ema_loss"], delta=1e-4)
        for flags, key in (([], "loss"), (["--ema"], "ema_loss")):
            found = json.loads(cli.must_run("eval", "--checkpoint", run_dir, "--json", *flags).stdout)
            self.assertEqual(found["loss"], record[key])

        half = self.train(config, "ema-half", "--set", "train.steps=13")
        self.train(config, "ema-half", "--resume", half, "--set", f"train.steps={STEPS}")
        for file in ("model.safetensors", "optimizer.safetensors", "ema.safetensors"):
            self.assertEqual((cli.checkpoints(half)[STEPS] / file).read_bytes(), (last / file).read_bytes(), file)
        both = self.folder / "ema-both"
        cli.must_run_ranks(2, "train", config, "--run-dir", both)
        found = load_file(cli.checkpoints(both)[STEPS] / "ema.safetensors")
        for name, tensor in saved.items():
            self.assert_near(found[name], tensor)
        other = cli.run("train", config, "--run-dir", half, "--resume", "auto", "--set", "train.ema_decay=0",
                        "--set", "train.ema_every_steps=1", "--set", f"train.steps={STEPS + 1}")
        self.assertEqual(other.returncode, 2)
        self.assertIn("train.ema_decay", cli.error_of(other))
        plain = self.train(self.configuration("plain.toml", steps=2), "plain")
        refused = cli.run("eval", "--checkpoint", plain, "--ema")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("no averaged weights", cli.error_of(refused))

    def test_averages_of_models_with_tied_parameters_and_with_buffers(self):
        """What is evaluated while training is what the saved average gives when it is loaded whole."""
        models = {"gpt2": ({"name": "gpt2", "size": "nano"}, {"name": "toy", "samples": 60}),
                  "resnet8": ({"name": "resnet8"}, {"name": "shapes", "samples": 60})}
        for name, (model, data) in models.items():
            with self.subTest(name):
                config = cli.write_config(
                    self.folder / f"{name}.toml", device={"list": "cpu", "threads": 1}, model=model, data=data,
                    train={"steps": 6, "global_batch": 20, "optimizer": "adamw", "lr": 0.01, "ema_decay": 0.5},
                    pipeline={"stages": 3}, replicas={"local": 2})
                run_dir = self.train(config, f"average-{name}")
                last = cli.checkpoints(run_dir)[6]
                model_file, average = load_file(last / "model.safetensors"), load_file(last / "ema.safetensors")
                self.assertEqual(average.keys(), model_file.keys())
                for key, tensor in average.items():
                    self.assertEqual(torch.equal(tensor, model_file[key]), ".running_" in key or "batches_tracked" in key, key)
                found = json.loads(cli.must_run("eval", "--checkpoint", run_dir, "--json", "--ema").stdout)
                self.assertEqual(found["loss"], cli.column(run_dir, "ema_loss", "eval")[-1])

    @staticmethod
    def every(steps, action):
        """A hook of an optimizer that acts after every so many steps."""
        counter = itertools.count(1)
        return lambda *_: action() if next(counter) % steps == 0 else None

    def test_amsgrad_goes_on_from_a_checkpoint_bit_for_bit(self):
        config = self.configuration("amsgrad.toml", optimizer="adam", amsgrad=True, weight_decay=0.1)
        whole = self.train(config, "amsgrad")
        half = self.train(config, "amsgrad-half", "--set", "train.steps=13")
        self.train(config, "amsgrad-half", "--resume", half, "--set", f"train.steps={STEPS}")
        for file in ("model.safetensors", "optimizer.safetensors"):
            self.assertEqual((cli.checkpoints(half)[STEPS] / file).read_bytes(),
                             (cli.checkpoints(whole)[STEPS] / file).read_bytes(), file)
        self.train_twin(torch.optim.Adam(self.twin.parameters(), lr=LR, weight_decay=0.1, amsgrad=True))
        model = load_file(cli.checkpoints(whole)[STEPS] / "model.safetensors")
        for key, parameter in self.twin.named_parameters():
            self.assert_near(model[key], parameter.detach())

    def test_evaluation_on_the_first_samples_of_the_test_set(self):
        config = self.configuration("eval.toml", steps=2, global_batch=5)
        limits = ((7, 6, 6), (7, 0, 7), (99, 0, TEST_SAMPLES))
        for limit, data_limit, samples in long_tests.some(limits[:2], limits, "more than there are"):
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
