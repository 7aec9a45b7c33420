"""Compares a run of an exported model with its PyTorch module: what `export_model.py --check RUN` does.

Both sides compute loss and gradients of one random batch with the weights of the run's newest checkpoint, without
dropout, on one thread.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import tomllib

import torch
from safetensors.torch import load_file, save_file

import export_model
from export_sources import CannotExport

LOSS_BOUND, GRADIENT_BOUND = 1e-4, 1e-3  # relative, of float32


def newest_checkpoint(run):
    steps = [path for path in (run / "checkpoints").glob("step-*") if (path / "state.json").is_file()]
    if not steps:
        raise CannotExport(f"{run} has no checkpoint; let the run save one")
    return max(steps, key=lambda path: int(path.name.removeprefix("step-")))


def without_dropout(module):
    for part in module.modules():
        if isinstance(part, torch.nn.modules.dropout._DropoutNd) or type(part).__name__ == "StochasticDepth":
            part.p = 0.0
        for name, value in vars(part).items():
            if "dropout" in name and isinstance(value, float):
                setattr(part, name, 0.0)
    return module


def refuse_random(program):
    for node in program.graph.nodes:
        if node.op != "call_function" or not any(word in str(node.target) for word in export_model.RANDOM):
            continue
        chance = [value for value in node.args if isinstance(value, float) and 0 < value < 1]
        if chance or "dropout" not in str(node.target):
            raise CannotExport(f"the module draws random numbers ({node.target}), which both sides draw in other ways; "
                                            "let it be without dropout, for example with p = 0, and check again")


def operators_of(exported):
    return [str(node.target) for node in exported.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]


def loss_of(module, inputs, gives_loss):
    """The loss, and random targets for a module that gives logits."""
    first = export_model.first_output(module(**inputs))
    if gives_loss:
        return first, {}
    if first.dim() == 1 or first.shape[-1] == 1:
        numbers = first.reshape(len(first), -1).squeeze(-1)
        targets = torch.randn(numbers.shape)
        return torch.nn.functional.mse_loss(numbers, targets), {"targets": targets}
    class_dim = 1 if first.dim() > 3 else -1
    logits = first.movedim(class_dim, -1)
    targets = torch.randint(0, logits.shape[-1], logits.shape[:-1])
    return torch.nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten()), {"targets": targets}


def sluice_step(folder, file, weights, batch, task):
    save_file(batch, folder / "batch.safetensors")
    config = folder / "check.toml"
    task_line = f"task = {json.dumps(task)}\n" if task else ""
    config.write_text(f"[model]\nname = \"pt2\"\nfile = {json.dumps(str(file))}\n{task_line}[device]\nlist = \"cpu\"\nthreads = 1\n")
    root = pathlib.Path(__file__).resolve().parent.parent
    binary = pathlib.Path(os.environ.get("SLUICE_BINARY", root / "build" / "release" / "sluice"))
    if not binary.is_file():
        raise CannotExport(f"there is no {binary}; build Sluice (scripts/test.sh), or set SLUICE_BINARY")
    words = [binary, "step", config, "--weights", weights, "--batch", folder / "batch.safetensors", "--out", folder / "out.safetensors"]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotExport(f"sluice step: {done.stderr.strip().splitlines()[-1]}")
    return load_file(folder / "out.safetensors")


def check(run):
    """True if both sides agree."""
    run = pathlib.Path(run)
    with open(run / "config.toml", "rb") as file:
        model = tomllib.load(file)["model"]
    exported = pathlib.Path(model["file"])
    if not exported.is_file():
        raise CannotExport(f"{exported} (model.file of the run) is not here; start --check in the folder of the run's start")
    checkpoint = newest_checkpoint(run)
    module, inputs, source, original = export_model.make_again(model["file"])
    if operators_of(export_model.export(module.train(), inputs)) != operators_of(original):
        raise CannotExport(f"the module computes something else than {exported}, so it has changed since the export; export it again")
    module.load_state_dict(load_file(checkpoint / "model.safetensors"), strict=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    without_dropout(module).float().train()
    inputs = {name: value.float() if value.is_floating_point() else value for name, value in inputs.items()}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        refuse_random(export_model.export_to(folder / "m.pt2", module, inputs))
        loss, targets = loss_of(module, inputs, source["loss"])
        out = sluice_step(folder, folder / "m.pt2", checkpoint / "model.safetensors", {**inputs, **targets}, model.get("task"))
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in module.named_parameters() if parameter.grad is not None}
    errors = export_model.relative_errors({name: out[f"grad/{name}"] for name in gradients}, gradients)
    worst = max(errors, key=lambda name: float("inf") if errors[name] != errors[name] else errors[name])
    loss_error = abs(out["loss"].item() - loss.item()) / max(abs(loss.item()), 1e-6)
    print(f"{checkpoint}: load_state_dict(strict=True) takes all {len(module.state_dict())} tensors")
    print(f"loss       PyTorch {loss.item():.6f}, Sluice {out['loss'].item():.6f}")
    print(f"gradients  {len(errors)} tensors; the largest relative difference is {errors[worst]:.1e}, of {worst}")
    return loss_error <= LOSS_BOUND and all(error <= GRADIENT_BOUND for error in errors.values())
