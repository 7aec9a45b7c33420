#!/usr/bin/env python3
"""model.lora_rank: one step beside plain PyTorch in float64, with one and two stages.

    lora_test.py [unittest options]        SLUICE_BINARY names the binary; exits 77 without transformers
"""

import pathlib
import sys
import tempfile
import unittest

import torch

import sluice_cli as cli

try:
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")
    sys.exit(77)

import lora_models as models
from lora_models import ALPHA, CLASSES, LR, MODELS, RANK, WORDS, assert_close
from text_loops import EXACT

TEXTS, TOKENS = 6, 10


EXACT.start()


class Adapted(torch.nn.Module):
    """LoRA in plain PyTorch: base(x) + alpha / rank B A x."""

    def __init__(self, base, a, b):
        super().__init__()
        self.base, self.a, self.b = base, torch.nn.Parameter(a), torch.nn.Parameter(b)

    def forward(self, x):
        return self.base(x) + ALPHA / RANK * x @ self.a.T @ self.b.T


def layers_of(model, targets):
    """The linear layers besides a trained head, by name."""
    return {name: module for name, module in model.named_modules()
            if name.rsplit(".", 1)[-1] in targets and not name.startswith("classifier")}


def random_adapters(layers):
    """Under Sluice's names; B is not 0, so that A has a gradient."""
    tensors = {}
    for name, layer in layers.items():
        sizes = layer.weight.shape if isinstance(layer, torch.nn.Linear) else layer.weight.T.shape
        tensors[f"{name}.lora_A.weight"] = torch.randn(RANK, sizes[1], dtype=torch.float64) * 0.2
        tensors[f"{name}.lora_B.weight"] = torch.randn(sizes[0], RANK, dtype=torch.float64) * 0.2
    return tensors


def plain_step(model, layers, adapters, batch):
    """Loss, logits and gradients by Sluice's names."""
    model.requires_grad_(False)
    trained = {name: parameter.requires_grad_() for name, parameter in model.named_parameters()
               if name.startswith("classifier")}
    for name, layer in layers.items():
        parent, _, last = name.rpartition(".")
        adapted = Adapted(layer, adapters[f"{name}.lora_A.weight"], adapters[f"{name}.lora_B.weight"])
        setattr(model.get_submodule(parent), last, adapted)
        trained |= {f"{name}.lora_A.weight": adapted.a, f"{name}.lora_B.weight": adapted.b}
    logits = model(input_ids=batch["inputs"]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), batch["targets"].flatten())
    loss.backward()
    return loss.detach(), logits.detach(), {name: parameter.grad for name, parameter in trained.items()}


class LoraTest(unittest.TestCase):
    def compare(self, out, weights, expected):
        loss, logits, gradients = expected
        assert_close(out["loss"], loss, "loss")
        assert_close(out["logits"], logits, "logits")
        self.assertEqual({key[5:] for key in out if key.startswith("grad/")}, set(gradients))
        for name, gradient in gradients.items():
            assert_close(out[f"grad/{name}"], gradient, f"gradient of {name}")
            assert_close(out[f"param/{name}"], weights[name] - LR * gradient, name)
        for name in set(weights) - set(gradients):
            self.assertTrue(torch.equal(out[f"param/{name}"], weights[name]), f"{name} is frozen")

    def test_a_step_equals_plain_pytorch(self):
        for name, (_, task, targets) in MODELS.items():
            folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
            model = models.make_base(name, folder / "base")
            layers = layers_of(model, targets)
            adapters = random_adapters(layers)
            weights = load_file(folder / "base/model.safetensors") | adapters
            save_file(weights, folder / "weights.safetensors")
            sizes = (TEXTS,) if task == "classify" else (TEXTS, TOKENS)
            batch = {"inputs": torch.randint(5, len(WORDS), (TEXTS, TOKENS)),
                     "targets": torch.randint(0, CLASSES, sizes)}
            save_file(batch, folder / "batch.safetensors")
            expected = plain_step(model, layers, {key: value.clone() for key, value in adapters.items()}, batch)
            for pipeline in ({}, {"stages": 2, "chunks": 2}, {"stages": 2, "chunks": 3, "schedule": "zb-h1"}):
                with self.subTest(name, **pipeline):
                    config = models.write_config(folder, name, pipeline=pipeline)
                    cli.must_run("step", config, "--weights", folder / "weights.safetensors",
                                 "--batch", folder / "batch.safetensors", "--out", folder / "out.safetensors")
                    self.compare(load_file(folder / "out.safetensors"), weights, expected)


if __name__ == "__main__":
    unittest.main()
