"""`sluice step` against PyTorch in float64: the same weights and batch through the twin of tests/models/torch_models.py.

    compare_with_torch.py MODEL fp64|fp32|4x4        SLUICE_BINARY names the binary; exits 77 without safetensors

4x4: fp32 with train.winograd = "4x4".

Loss, logits, every gradient, and every parameter and buffer after the optimizer's step, over grids of stages, replicas,
chunks and optimizers. The twin runs on one device; a model with batch-norm normalises by the same micro-batches there.
CI takes a third of the cases of each model and precision, together all of them in both precisions.
"""

import copy
import json
import math
import pathlib
import sys
import tempfile
import unittest.mock

import torch
from torch.nn import functional as F

import long_tests
import sluice_cli
import torch_models

try:
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")
    sys.exit(77)

# Relative to max(|t*|, 1e-3 |all of its kind|), norms. The twin computes in float64, so the errors are ours alone.
TOLERANCE = {"fp64": 1e-10, "fp32": 1e-5, "4x4": 1e-5}
ROUNDING = {"fp64": 0.0, "fp32": 4e-6, "4x4": 8e-6}  # how far off an input of a ReLU may be; in float64 none is so near to zero
# 13 of 16 samples, as in the last batch of an epoch: they divide by nothing, and 8 chunks leave some empty.
CLASSES, CHANNELS, IMAGE, GLOBAL_BATCH, SAMPLES, LR = 10, 3, 16, 16, 13, 0.05
TOKENS, LENGTH, NO_TARGET = 256, 9, -100
# A large eps: without it Adam's first step is the sign of the gradient, also where that is nothing but rounding.
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {}, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}, {"momentum": 0.9}),
    "nesterov": (torch.optim.SGD, {"momentum": 0.8, "nesterov": True}, {"momentum": 0.8, "nesterov": True}),
    "clipped": (torch.optim.SGD, {"momentum": 0.9}, {"momentum": 0.9, "clip_norm": 0.01}),
    "unclipped": (torch.optim.SGD, {}, {"clip_norm": 1e6}),
    "rmsprop": (torch.optim.RMSprop, {"alpha": 0.9, "eps": 1e-3}, {"rms_alpha": 0.9, "eps": 1e-3}),
    "adam": (torch.optim.Adam, {"betas": (0.8, 0.95), "eps": 1e-3}, {"beta1": 0.8, "beta2": 0.95, "eps": 1e-3}),
    "adamw": (torch.optim.AdamW, {"betas": (0.9, 0.99), "eps": 1e-3}, {"beta1": 0.9, "beta2": 0.99, "eps": 1e-3}),
}
KINDS = {"nesterov": "momentum", "clipped": "momentum", "unclipped": "sgd"}  # the others are named like theirs
# stages (devices a replica), replicas, chunks, schedule, optimizer, weight decay, further keys of [pipeline]
CASES = [
    (1, 1, 1, "1f1b", "momentum", 0.01, {}),
    (1, 1, 3, "1f1b", "nesterov", 0.01, {"recompute": "layer"}),
    (2, 1, 1, "gpipe", "adam", 0.01, {}),
    (2, 1, 3, "1f1b", "adamw", 0.1, {}),
    (1, 2, 1, "1f1b", "adamw", 0.0, {}),
    (2, 2, 3, "1f1b", "momentum", 0.01, {"recompute": "layer"}),
    (2, 2, 8, "gpipe", "unclipped", 0.0, {}),
    (3, 1, 4, "1f1b", "clipped", 0.01, {}),
    (3, 1, 8, "eager-1f1b", "sgd", 0.0, {}),
    (2, 1, 3, "looped-bfs", "sgd", 0.0, {"virtual": 1}),
    (1, 2, 3, "looped-bfs", "momentum", 0.0, {"virtual": 3}),
    (1, 2, 3, "interleaved", "sgd", 0.01, {}),
    (2, 1, 3, "interleaved", "momentum", 0.0, {"recompute": "layer"}),
    (2, 2, 3, "zb-h1", "momentum", 0.01, {}),
    (3, 1, 8, "zb-h2", "adamw", 0.0, {}),
    (2, 1, 4, "zb-h1", "sgd", 0.0, {"recompute": "layer"}),
    (1, 2, 4, "zb-v", "momentum", 0.0, {}),
    (2, 2, 3, "zb-v", "sgd", 0.0, {}),
    (1, 2, 3, "dualpipe-v", "momentum", 0.0, {}),
    (2, 1, 5, "dualpipe-v", "sgd", 0.0, {"recompute": "layer"}),
    (2, 2, 3, "1f1b", "rmsprop", 0.1, {}),
]
VIRTUAL = {"interleaved": 2, "looped-bfs": 2, "zb-v": 2, "dualpipe-v": 2}  # stages a device, where the case says nothing


TWINS = {
    "vit": lambda: torch_models.ViT("nano", patch=4, image=IMAGE, eps=torch_models.ViT.OF_TRANSFORMERS),
    "mlp": lambda: torch_models.Mlp(pixels=CHANNELS * IMAGE * IMAGE),
    "resnet8": torch_models.ResNet8,
    "resnet18": torch_models.ResNet,
    "toy_cnn": torch_models.ToyCnn,
    "gpt2": lambda: torch_models.Gpt2("nano", tied=True),
}


def make_twin(name):
    """In float32, so that the weights are the same numbers in both precisions."""
    twin = TWINS[name]().train()
    with torch.no_grad():  # off the initial values, so that a swapped or ignored tensor shows
        for parameter in twin.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
        for buffer in twin.buffers():
            if buffer.is_floating_point():
                buffer.add_(torch.rand_like(buffer))
    return twin


def merge_buffers(twin, per_replica, shares):
    """Running statistics: the mean over replicas by samples. Counts of batches: those of replica 0."""
    for name, buffer in twin.named_buffers():
        values = [buffers[name] for buffers in per_replica]
        if buffer.is_floating_point():
            buffer.copy_(sum(value * share for value, share in zip(values, shares)) / sum(shares))
        else:
            buffer.copy_(values[0])


def targets_that_count(batch):
    return (batch["targets"] != NO_TARGET).sum()


def torch_step(twin, batch, replicas, chunks, optimizer, clip_norm):
    """One step of the twin, micro-batch by micro-batch; the names are those of `sluice step --out`."""
    before = {name: buffer.clone() for name, buffer in twin.named_buffers()}
    inputs, targets = (tensor.tensor_split(replicas) for tensor in (batch["inputs"], batch["targets"]))
    losses, logits, per_replica = [], [], []
    for x, y in zip(inputs, targets):
        for name, buffer in twin.named_buffers():
            buffer.copy_(before[name])
        for x_chunk, y_chunk in zip(x.tensor_split(chunks), y.tensor_split(chunks)):
            if len(y_chunk) == 0:
                continue
            logits.append(twin(x_chunk))
            scores = logits[-1].flatten(0, -2)
            losses.append(F.cross_entropy(scores, y_chunk.flatten(), reduction="sum") / targets_that_count(batch))
            losses[-1].backward()
        per_replica.append({name: buffer.clone() for name, buffer in twin.named_buffers()})
    merge_buffers(twin, per_replica, [len(y) for y in targets])
    result = {"loss": sum(losses).detach(), "logits": torch.cat(logits).detach()}
    result |= {f"grad/{name}": parameter.grad.clone() for name, parameter in twin.named_parameters()}
    if clip_norm:
        result["gradient_norm"] = torch.nn.utils.clip_grad_norm_(twin.parameters(), clip_norm).detach()
    optimizer.step()
    result |= {f"param/{name}": parameter.detach() for name, parameter in twin.named_parameters()}
    return result | {f"buffer/{name}": buffer for name, buffer in twin.named_buffers()}


def sluice_step(folder, name, precision, case):
    stages, replicas, chunks, schedule, optimizer, decay, further = case
    kind = KINDS.get(optimizer, optimizer)
    config = sluice_cli.write_config(
        folder / "step.toml",
        device={"list": "cpu"},
        model={"name": name, "size": "nano"} | (
            {} if name == "gpt2" else
            {"classes": CLASSES, "image_size": IMAGE, "channels": CHANNELS}),
        data={"name": "toy" if name == "gpt2" else "shapes", "samples": 64},
        train={"precision": "fp32" if precision == "4x4" else precision, "winograd": "4x4" if precision == "4x4" else "2x2",
               "global_batch": GLOBAL_BATCH, "lr": LR, "optimizer": kind, "weight_decay": decay,
               "steps": 1, **OPTIMIZERS[optimizer][2]},
        pipeline={"stages": stages, "chunks": chunks, "schedule": schedule, **further},
        replicas={"local": replicas})
    sluice_cli.must_run(
        "step", config, "--weights", folder / "weights.safetensors", "--batch", folder / "batch.safetensors",
        "--out", folder / "out.safetensors")
    return load_file(folder / "out.safetensors")


def norm(tensors):
    return sum(tensor.double().norm().item() ** 2 for tensor in tensors) ** 0.5


def differences(ours, theirs):
    """Relative error of every tensor by name."""
    kinds = {kind: norm(value for name, value in theirs.items() if name.split("/")[0] == kind)
             for kind in {name.split("/")[0] for name in theirs}}
    errors = {}
    for name, expected in theirs.items():
        scale = max(norm([expected]), 1e-3 * kinds[name.split("/")[0]], 1e-300)
        errors[name] = (ours[name].double() - expected.double()).norm().item() / scale
    return errors


def make_batch(name):
    """Of tokens: a third of the targets, and all of two samples, count nowhere."""
    if name != "gpt2":
        return {"inputs": torch.randn(SAMPLES, CHANNELS, IMAGE, IMAGE), "targets": torch.randint(0, CLASSES, (SAMPLES,))}
    targets = torch.randint(0, TOKENS, (SAMPLES, LENGTH))
    targets = targets.masked_fill(torch.rand(SAMPLES, LENGTH) < 0.3, NO_TARGET)
    targets[4:6] = NO_TARGET
    return {"inputs": torch.randint(0, TOKENS, (SAMPLES, LENGTH)), "targets": targets}


def nearest_to_zero(twin, batch, case):
    """The least magnitude that a ReLU of the twin is given in a step."""
    least = math.inf

    def watched(x, inplace=False):
        nonlocal least
        least = min(least, x.detach().abs().min().item())
        return torch.relu_(x) if inplace else torch.relu(x)

    twin, batch = copy.deepcopy(twin), dict(batch)
    with unittest.mock.patch.object(F, "relu", watched):
        to_double(twin, batch)
        torch_step(twin, batch, case[1], case[2], torch.optim.SGD(twin.parameters(), lr=0), None)
    return least


def to_double(twin, batch):
    twin.double()
    if batch["inputs"].is_floating_point():
        batch["inputs"] = batch["inputs"].double()


def make_case(name, precision, case):
    """A twin and a batch none of whose ReLUs has an input within rounding's reach of zero: its sign would be decided by
    rounding, which differs between processors, and one changed sign is a gradient that differs by a thousandth."""
    for draw in range(100):
        torch.manual_seed(CASES.index(case) + 1000 * draw)
        twin, batch = make_twin(name), make_batch(name)
        if nearest_to_zero(twin, batch, case) > ROUNDING[precision]:
            return twin, batch
    raise AssertionError(f"{name} {case}: every draw has a ReLU's input next to zero")


def check(folder, name, precision, case):
    """Compares one case; returns its worst error and the tensors that differ too much."""
    twin, batch = make_case(name, precision, case)
    # A tied parameter is there under both of its names, as in the state dicts of transformers.
    save_file({key: value.clone() for key, value in twin.state_dict().items()}, folder / "weights.safetensors")
    save_file(batch, folder / "batch.safetensors")
    ours = sluice_step(folder, name, precision, case)

    to_double(twin, batch)
    maker, arguments, keys = OPTIMIZERS[case[4]]
    optimizer = maker(twin.parameters(), lr=LR, weight_decay=case[5], **arguments)
    theirs = torch_step(twin, batch, case[1], case[2], optimizer, keys.get("clip_norm"))
    if ours.keys() != theirs.keys():
        return 0.0, [f"names differ: {sorted(ours.keys() ^ theirs.keys())}"]
    errors = differences(ours, theirs)
    bad = [f"{tensor}: {error:.2e}" for tensor, error in errors.items() if not error <= TOLERANCE[precision]]
    return max(errors.values()), bad


def has_layers_for(case, layers):
    stages, schedule, further = case[0], case[3], case[6]
    return stages * further.get("virtual", VIRTUAL.get(schedule, 1)) <= layers


def cases_of(name, precision, layers):
    cases = [case for case in CASES if has_layers_for(case, layers)]
    first = (sorted(TWINS).index(name) + (precision != "fp64")) % 3
    return long_tests.some(cases[first::3], cases, "other models and the other precision have the other cases")


def count_layers(name):
    models = json.loads(sluice_cli.must_run("models", "--json").stdout)["models"]
    return next(model["layers"] for model in models if model["name"] == name)


def main():
    name, precision = sys.argv[1:]
    layers = count_layers(name)
    torch.set_num_threads(1)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for case in cases_of(name, precision, layers):
            worst, bad = check(pathlib.Path(folder), name, precision, case)
            print(f"{name} {precision} {case}: worst {worst:.1e}" + "".join(f"\n    {line}" for line in bad), flush=True)
            failed = failed or bool(bad)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
