#!/usr/bin/env python3
"""train.micro_batch on one device: the gradient of the whole batch, as PyTorch adds it up, in less memory.

    accumulation_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import pathlib
import sys
import tempfile
import unittest

import torch

import sluice_cli as cli

try:
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")
    sys.exit(77)

import torch_models  # noqa: E402

SAMPLES = 13  # no micro-batch divides it


def accumulated(model, inputs, targets, micro_batch):
    """As one writes it in PyTorch, where a short micro-batch is to weigh no more than its samples."""
    model.zero_grad()
    total = 0.0
    for x, y in zip(inputs.split(micro_batch), targets.split(micro_batch), strict=True):
        loss = torch.nn.functional.cross_entropy(model(x), y, reduction="sum") / len(inputs)
        loss.backward()
        total += loss.item()
    return total, {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


class AccumulationTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def step(self, name, *sets):
        out = self.folder / "out.safetensors"
        cli.must_run("step", self.config_of(name), "--weights", self.folder / "weights.safetensors",
                     "--batch", self.folder / "batch.safetensors", "--out", out,
                     *(word for each in sets for word in ("--set", each)))
        return load_file(out)

    def config_of(self, name, **train):
        return cli.write_config(self.folder / "config.toml", device={"list": "cpu", "threads": 1},
                                model={"name": name, "size": "nano"}, data={"name": "shapes", "samples": 64},
                                train={"precision": "fp64", "global_batch": SAMPLES, "lr": 0.1, **train})

    def test_micro_batches_add_up_to_the_gradient_of_the_batch(self):
        for name in ("vit", "toy_cnn"):
            torch.manual_seed(1)
            model = torch_models.make(name, "nano", eps=torch_models.ViT.OF_TRANSFORMERS).double()
            inputs, targets = torch.randn(SAMPLES, 3, 32, 32, dtype=torch.float64), torch.randint(0, 10, (SAMPLES,))
            save_file({key: value.contiguous() for key, value in model.state_dict().items()}, self.folder / "weights.safetensors")
            save_file({"inputs": inputs, "targets": targets}, self.folder / "batch.safetensors")
            loss, expected = accumulated(model, inputs, targets, 5)
            self.assertAlmostEqual(loss, accumulated(model, inputs, targets, SAMPLES)[0], delta=1e-12)
            largest = max(float(value.norm()) for value in expected.values())
            for sets in (["train.micro_batch=5"], ["train.micro_batch=1"], ["pipeline.chunks=4"],
                         ["train.micro_batch=5", "replicas.local=2"], ["train.micro_batch=5", "pipeline.schedule=gpipe"]):
                with self.subTest(model=name, sets=sets):
                    ours = self.step(name, *sets)
                    self.assertAlmostEqual(float(ours["loss"]), loss, delta=1e-12)
                    for key, value in expected.items():
                        error = float((ours[f"grad/{key}"] - value).norm())
                        self.assertLessEqual(error, 1e-10 * max(float(value.norm()), 1e-3 * largest), key)

    def test_activations_take_the_memory_of_one_micro_batch(self):
        peaks = {}
        for micro_batch in (0, 8):
            config = self.config_of("vit", precision="fp32", global_batch=64, steps=2, micro_batch=micro_batch)
            run = self.folder / f"run{micro_batch}"
            cli.must_run("train", config, "--run-dir", run)
            summary = cli.events(run, "summary")[0]
            fixed = sum(summary["peak_memory_bytes"][kind] for kind in ("parameters", "gradients", "optimizer"))
            peaks[micro_batch] = summary["peak_memory_bytes"]["cpu:0"] - fixed
            self.assertEqual(cli.events(run, "plan")[0]["chunks"], 64 // (micro_batch or 64))
            self.assertEqual(len(cli.events(run, "step")), 2)
        self.assertLess(peaks[8], 0.3 * peaks[0], peaks)


if __name__ == "__main__":
    unittest.main()
