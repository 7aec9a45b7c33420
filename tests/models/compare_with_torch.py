"""Compares one training step of ours with the PyTorch twin: logits, loss, every gradient, batch-norm buffers.

    compare_with_torch.py --dump PROGRAM MODEL SIZE STEM DTYPE

Runs PROGRAM MODEL SIZE STEM DTYPE FILE (tests/models/step_dump).

FILE is safetensors with inputs, targets, weight/NAME, buffer/NAME (before), loss, logits, grad/NAME, buffer_after/NAME.
The weights load strictly, so names and shapes must be the twin's. Exits 1 and prints each difference that is too large.
"""

import argparse
import json
import mmap
import subprocess
import sys
import tempfile

import torch
from torch.nn import functional as F

import torch_models

TYPES = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64}
# Relative to max(|g*|, 1e-3 |all gradients|), norms: the project's promise in float64, rounding in float32.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 5e-5}


def read_safetensors(path):
    """Tensors that lie in the mapped file: VGG-16 in float64 has 2 GB of them."""
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            dtype = TYPES[entry["dtype"]]
            flat = torch.frombuffer(data, dtype=dtype, count=(end - begin) // dtype.itemsize, offset=8 + size + begin)
            tensors[name] = flat.reshape(entry["shape"])
    return tensors


def part(tensors, prefix):
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}


def compare(model, tensors):
    """Returns the list of differences that are too large. `model` may be without values, on the meta device."""
    dtype = tensors["logits"].dtype
    twin = model.train()
    twin.load_state_dict({**part(tensors, "weight/"), **part(tensors, "buffer/")}, strict=True, assign=True)
    logits = twin(tensors["inputs"])
    loss = F.cross_entropy(logits.flatten(0, -2), tensors["targets"].flatten())
    loss.backward()

    bad = []
    tolerance = TOLERANCE[dtype]

    def check(what, ours, theirs, scale):
        error = (ours.double() - theirs.double()).norm().item() / max(scale, 1e-300)
        if not error <= tolerance:
            bad.append(f"{what}: relative error {error:.2e} > {tolerance:.0e}")

    check("logits", tensors["logits"], logits.detach(), logits.norm().item())
    check("loss", tensors["loss"], loss.detach(), abs(loss.item()))
    ours, theirs = part(tensors, "grad/"), {name: p.grad for name, p in twin.named_parameters()}
    if ours.keys() != theirs.keys():
        bad.append(f"gradients differ in names: {sorted(ours.keys() ^ theirs.keys())}")
        return bad
    total = sum(g.double().norm().item() ** 2 for g in theirs.values()) ** 0.5
    for name, gradient in theirs.items():
        check(f"grad/{name}", ours[name], gradient, max(gradient.norm().item(), 1e-3 * total))
    for name, buffer in part(tensors, "buffer_after/").items():
        expected = twin.get_buffer(name)
        check(f"buffer_after/{name}", buffer, expected, expected.double().norm().item())
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dump", required=True)
    parser.add_argument("model")
    parser.add_argument("size")
    parser.add_argument("stem")
    parser.add_argument("dtype", choices=["fp32", "fp64"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        subprocess.run([args.dump, args.model, args.size, args.stem, args.dtype, file.name], check=True)
        tensors = read_safetensors(file.name)
    bad = []
    for short in [False, True] if args.model == "vit" else [False]:  # the short one is the peer of the benchmarks
        with torch.device("meta"):
            model = torch_models.make(args.model, args.size, args.stem, class_token_only=short)
        bad += compare(model, tensors)
    print("\n".join(bad) if bad else f"{args.model} {args.size} {args.stem} {args.dtype}: {len(tensors)} tensors agree")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
