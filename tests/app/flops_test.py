#!/usr/bin/env python3
"""Model FLOPs of a step, and MFU, against PyTorch's own counter on the twin of the model.

    flops_test.py        SLUICE_BINARY names the binary

PyTorch counts the full ViT; ours runs the last block for the class token alone, so its twin is an upper bound there.
"""

import pathlib
import sys
import tempfile

import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import sluice_cli as cli
import torch_models

IMAGE, BATCH = 16, 16
TWINS = {
    "mlp": lambda: torch_models.Mlp(pixels=3 * IMAGE * IMAGE),
    "toy_cnn": torch_models.ToyCnn,
    "resnet8": torch_models.ResNet8,
    "vit": lambda: torch_models.ViT("nano", patch=4, image=IMAGE),
}


def torch_flops(name):
    twin = TWINS[name]().train()
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(twin(torch.randn(BATCH, 3, IMAGE, IMAGE)), torch.zeros(BATCH, dtype=torch.long)).backward()
    return counter.get_total_flops()


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name in TWINS:
            expected = torch_flops(name)
            for stages, replicas, chunks in ((1, 1, 1), (2, 2, 4)):
                run_dir = pathlib.Path(folder) / f"{name}-{stages}"
                config = cli.write_config(
                    pathlib.Path(folder) / "run.toml", device={"list": "cpu", "threads": 1},
                    model={"name": name, "size": "nano", "image_size": IMAGE}, data={"name": "shapes", "samples": 64},
                    train={"steps": 3, "global_batch": BATCH}, pipeline={"stages": stages, "chunks": chunks},
                    replicas={"local": replicas}, profile={"peak_tflops": 0.5})
                cli.must_run("train", config, "--run-dir", run_dir)
                for step in cli.events(run_dir, "step"):
                    found = step["flops_per_s"] * step["step_ms"] / 1000
                    ratio = found / expected
                    low = 0.6 if name == "vit" else 0.999999
                    assert low <= ratio <= 1.000001, f"{name}: {found} FLOP a step, PyTorch counts {expected}"
                    peak = 0.5e12 * stages * replicas
                    assert abs(step["mfu"] - step["flops_per_s"] / peak) < 1e-9, step["mfu"]
                print(f"{name}, {stages} stages x {replicas} replicas: {ratio:.6f} of PyTorch's {expected / 1e6:.1f} MFLOP")
    return 0


if __name__ == "__main__":
    sys.exit(main())
