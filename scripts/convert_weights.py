#!/usr/bin/env python3
"""Converts weights that torch.save wrote (.pth, .pt, .bin, .ckpt) to safetensors, which Sluice reads.

usage: .venv/bin/python scripts/convert_weights.py IN OUT.safetensors

The file is read with weights_only=True, so it cannot run code; an argparse.Namespace beside the weights is allowed. Weights
are the file itself, or its entry state_dict, state_dict_ema, model_state_dict, model, model_ema or module. With several of
these entries, choose one with --key NAME, or NAME.NAME for a nested one. Removes the prefixes "module." (of a model on
several devices) and "_orig_mod." (of a compiled model) of all names, and one more word ("model.", "net.") if Sluice supports
the names without it. Other names stay: Sluice supports those of torchvision, Hugging Face and timm
(docs/how-to/weights.md). OUT is written completely or not at all.

Exit codes: 0 done, 2 bad usage or a package is missing, 7 IN is missing, cannot be read or holds no weights, 8 OUT cannot be
written.
"""

import argparse
import os
import pathlib
import re
import sys

BAD_USAGE, NO_WEIGHTS, CANNOT_WRITE = 2, 7, 8
KEYS = ("state_dict", "state_dict_ema", "model_state_dict", "model", "model_ema", "module")
PREFIXES = ("module.", "_orig_mod.")
# First words of our models' names in the libraries.
FIRST_WORDS = re.compile(r"(conv1|bn1|layer\d|fc|features|classifier|class_token|conv_proj|encoder|heads|head|cls_token|pos_embed"
                         r"|patch_embed|blocks|norm|stem|stages|vit|embeddings|layernorm|resnet|embedder|convnext|transformer"
                         r"|wte|wpe|h|ln_f|lm_head|pooler|pre_logits)\.?")


class Refusal(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


try:
    import torch
    from safetensors.torch import save_file
except ImportError as missing:
    print(f"convert_weights.py: {missing}; run scripts/bootstrap.sh --check-tools, or pip install torch safetensors",
          file=sys.stderr)
    sys.exit(BAD_USAGE)


def read(path):
    if not path.is_file():
        raise Refusal(NO_WEIGHTS, f"there is no file {path}; check the path")
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except PermissionError as error:
        raise Refusal(NO_WEIGHTS, f"{path} cannot be read: {error.strerror}; change its permissions") from error
    except Exception as error:  # torch.load raises errors of pickle, zipfile and its own
        objects = re.search(r"GLOBAL ([\w.]+)", str(error))
        why = f"it holds Python objects ({objects[1]})" if objects else "it is damaged, or torch.save did not write it"
        raise Refusal(NO_WEIGHTS, f"{path} cannot be read as weights alone: {why}; save the state_dict() of the model in the "
                                  "program that made it, or fetch the file again") from error


def is_table(value):
    return isinstance(value, dict) and all(isinstance(key, str) for key in value)


def entry(table, key, path):
    for word in key.split("."):
        if not is_table(table) or word not in table:
            raise Refusal(NO_WEIGHTS, f"{path} has no entry '{key}'; it has {listed(table)}")
        table = table[word]
    return table


def listed(table):
    names = [f"'{name}' ({type(value).__name__})" for name, value in table.items()] if is_table(table) else []
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") or f"a {type(table).__name__}"


def weights_in(table, key, path):
    """The table of tensors by name in the saved object."""
    if key:
        return entry(table, key, path)
    while is_table(table):
        found = [name for name in KEYS if is_table(table.get(name))]
        if not found:
            return table
        if len(found) > 1:
            raise Refusal(BAD_USAGE, f"{path} has weights under {' and '.join(found)}; choose one with --key")
        table = table[found[0]]
    return table


def without_prefixes(tensors):
    if "n_averaged" in tensors:  # torch.optim.swa_utils.AveragedModel: the model's names behind "module.", and this counter
        tensors = {name: tensor for name, tensor in tensors.items() if name != "n_averaged"}
    for prefix in (*PREFIXES, *PREFIXES):  # each may stand before the other
        if tensors and all(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    return without_first_word(tensors)


def is_known(name):
    word = FIRST_WORDS.match(name)
    return word is not None and (word.end() == len(name) or word[0].endswith("."))


def without_first_word(tensors):
    """Removes the name of the module that contains the model, as Lightning and many trainers save it."""
    prefixes = {name.partition(".")[0] + "." for name in tensors}
    if len(prefixes) != 1 or all(map(is_known, tensors)):
        return tensors
    shorter = {name.removeprefix(*prefixes): tensor for name, tensor in tensors.items()}
    return shorter if all(map(is_known, shorter)) else tensors


def checked(tensors, path):
    if not is_table(tensors) or not tensors:
        raise Refusal(NO_WEIGHTS, f"{path} has no table of tensors by name; it has {listed(tensors)}")
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise Refusal(NO_WEIGHTS, f"{path}: '{name}' is no tensor but a {type(tensor).__name__}; it has {listed(tensors)}; "
                                      "name the entry with the weights by --key")
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_complex():
            raise Refusal(NO_WEIGHTS, f"{path}: '{name}' is a {str(tensor.layout).removeprefix('torch.')} tensor of "
                                      f"{str(tensor.dtype).removeprefix('torch.')}; only dense real ones can be converted")
    return tensors


def write(tensors, out):
    """Writes a temporary file, syncs and renames it. Tensors that share memory are written separately."""
    beside = out.with_name(f"{out.name}.tmp-{os.getpid()}")
    try:
        save_file({name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}, beside, {"format": "pt"})
        with open(beside, "rb") as file:
            os.fsync(file.fileno())
        os.replace(beside, out)
    except Exception as error:  # OSError, or safetensors' own
        raise Refusal(CANNOT_WRITE, f"cannot write {out}: {error}; choose a folder that can be written") from error
    finally:
        beside.unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="IN", type=pathlib.Path)
    parser.add_argument("out", metavar="OUT", type=pathlib.Path)
    parser.add_argument("--key", default="", help="the entry that holds the weights")
    options = parser.parse_args()
    try:
        if options.out.suffix != ".safetensors":
            raise Refusal(BAD_USAGE, f"{options.out} must end in .safetensors")
        tensors = without_prefixes(checked(weights_in(read(options.source), options.key, options.source), options.source))
        write(tensors, options.out)
    except Refusal as refusal:
        print(f"convert_weights.py: {refusal}", file=sys.stderr)
        return refusal.code
    values = sum(tensor.numel() for tensor in tensors.values())
    print(f"{options.out}: {len(tensors)} tensors, {values} values")
    return 0


if __name__ == "__main__":
    sys.exit(main())
