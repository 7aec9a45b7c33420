#!/usr/bin/env python3
"""Exports a PyTorch model to a file that Sluice trains: [model] name = "pt2", file = "m.pt2".

The file has the program that torch.export makes of the model, once in training and once in evaluation mode, and the
weights. The sizes of the batch and, if the model allows it, of sequences stay open.
Exit codes: 0 done, 2 bad usage, 3 the model cannot be exported, 8 the file cannot be written.
"""

import argparse
import collections
import importlib.util
import inspect
import io
import json
import os
import pathlib
import sys
import types
import warnings
import zipfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.filterwarnings("ignore")

import torch

EXAMPLE_BATCH = 3  # not a size that models have themselves
EXAMPLE_TOKENS = 7


class CannotExport(Exception):
    pass


def from_file(spec):
    """The module and example inputs that FUNCTION of FILE.py returns."""
    path, _, function = spec.rpartition(":")
    if not path.endswith(".py"):
        raise CannotExport(f"{spec}: expected FILE.py:FUNCTION, for example model.py:make")
    if not os.path.isfile(path):
        raise CannotExport(f"{path}: there is no such file")
    sys.path.insert(0, str(pathlib.Path(path).resolve().parent))
    spec_of_file = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    code = importlib.util.module_from_spec(spec_of_file)
    spec_of_file.loader.exec_module(code)
    make = getattr(code, function, None)
    if not callable(make):
        raise CannotExport(f"{path} has no function {function}")
    made = make()
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module)):
        raise CannotExport(f"{spec} must return (module, example_inputs)")
    return made


def from_torchvision(name, classes, size):
    import torchvision
    if name not in torchvision.models.list_models(torchvision.models):
        raise CannotExport(f"torchvision has no classification model {name}; it has " +
                           ", ".join(torchvision.models.list_models(torchvision.models)))
    without_auxiliary = {"aux_logits": False, "init_weights": True} if name in ("googlenet", "inception_v3") else {}
    model = torchvision.models.get_model(name, weights=None, num_classes=classes, **without_auxiliary)
    return model, (torch.randn(EXAMPLE_BATCH, 3, size, size),)


def logits_of(output):
    """Of a ModelOutput; an answer's first and last token as [N, T, 2]."""
    if "start_logits" in output:
        return torch.stack((output["start_logits"], output["end_logits"]), -1)
    return output["logits"]


def from_transformers(name, folder, with_loss):
    import transformers
    kind = getattr(transformers, name, None)
    if not (inspect.isclass(kind) and issubclass(kind, transformers.PreTrainedModel)):
        raise CannotExport(f"transformers has no model {name}")
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    has_weights = any(pathlib.Path(folder).glob("*.safetensors"))
    model = kind.from_pretrained(folder, local_files_only=True) if has_weights else kind(config)
    names = [name for name in ("pixel_values", "input_ids", "attention_mask", "token_type_ids") if name in inspect.signature(kind.forward).parameters]
    return model, names
