"""The modules that scripts/export_model.py exports: of a Python file, of torchvision and of transformers."""

import contextlib
import difflib
import importlib.util
import inspect
import pathlib
import sys

import torch

SAMPLES, TOKENS = 3, 7  # of example inputs: sizes that models rarely have themselves


class CannotExport(Exception):
    pass


def first_line(error):
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__


def from_file(source):
    path, _, function = source.rpartition(":")
    if not path.endswith(".py"):
        raise CannotExport(f"{source}: expected FILE.py:FUNCTION, for example model.py:make")
    file = pathlib.Path(path)
    if not file.is_file():
        raise CannotExport(f"{path}: there is no such file")
    sys.path.insert(0, str(file.resolve().parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    code = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = code
    try:
        spec.loader.exec_module(code)
    except Exception as error:
        raise CannotExport(f"{path}: {type(error).__name__}: {first_line(error)}") from error
    if not hasattr(code, function):
        raise CannotExport(f"{path} has no function {function}")
    try:
        made = getattr(code, function)()
    except Exception as error:
        raise CannotExport(f"{source}: {type(error).__name__}: {first_line(error)}") from error
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module)):
        raise CannotExport(f"{source} must return (module, example_inputs)")
    module, inputs = made
    if isinstance(inputs, dict):
        return module, inputs
    inputs = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    names = [name for name in inspect.signature(module.forward).parameters if name != "self"]
    if len(inputs) > len(names):
        raise CannotExport(f"{source}: {len(inputs)} example inputs, but forward() takes {len(names)}")
    return module, dict(zip(names, inputs))


def from_torchvision(arguments):
    import torchvision
    known = torchvision.models.list_models(torchvision.models)
    if arguments.torchvision not in known:
        alike = difflib.get_close_matches(arguments.torchvision, known) or known
        raise CannotExport(f"torchvision has no classification model {arguments.torchvision}; it has {', '.join(alike)}")
    auxiliary = {"aux_logits": False, "init_weights": True} if arguments.torchvision in ("googlenet", "inception_v3") else {}
    build = torchvision.models.get_model_builder(arguments.torchvision)
    own_sizes = {"image_size": arguments.image_size} if arguments.torchvision.startswith("vit") else {}
    module = build(weights=arguments.weights, num_classes=arguments.classes or 1000, **auxiliary, **own_sizes)
    [name, *_] = inspect.signature(module.forward).parameters
    return module, {name: torch.randn(SAMPLES, 3, arguments.image_size, arguments.image_size)}


def with_forward(module, names, pick):
    """The module, whose forward() takes these arguments and returns pick() of its output. Its names stay."""
    kind = type(module)
    signature = inspect.Signature([inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)] +
                                  [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names])

    def forward(self, *values, **named):
        bound = signature.bind(self, *values, **named)
        return pick(kind.forward(self, **{name: bound.arguments[name] for name in names}))

    forward.__signature__ = signature
    module.__class__ = type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})
    return module


def logits_of(output):
    """An answer's first and last token are one tensor [N, T, 2]."""
    if "start_logits" in output:
        return torch.stack((output["start_logits"], output["end_logits"]), -1)
    if "logits" not in output:
        raise CannotExport(f"the model gives {', '.join(output.keys())}, but no logits; export it from a FILE.py")
    return output["logits"]


def example_of(name, config):
    vocabulary = getattr(config, "vocab_size", 2)
    if name == "pixel_values":
        size = getattr(config, "image_size", 224)
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        return torch.randn(SAMPLES, getattr(config, "num_channels", 3), height, width)
    if name in ("start_positions", "end_positions"):
        return torch.randint(0, TOKENS, (SAMPLES,))
    if name == "attention_mask":
        return torch.ones(SAMPLES, TOKENS, dtype=torch.long)
    if name == "token_type_ids":
        return torch.zeros(SAMPLES, TOKENS, dtype=torch.long)
    return torch.randint(0, vocabulary, (SAMPLES, TOKENS))


def from_transformers(arguments):
    import transformers
    transformers.logging.disable_progress_bar()
    kind = getattr(transformers, arguments.transformers, None)
    if not (inspect.isclass(kind) and issubclass(kind, transformers.PreTrainedModel)):
        raise CannotExport(f"transformers has no model {arguments.transformers}")
    folder = pathlib.Path(arguments.config)
    if not (folder / "config.json").is_file():
        raise CannotExport(f"{folder} has no config.json; --config names the folder of the model")
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    config.use_cache = False
    if arguments.classes:
        config.num_labels = arguments.classes
    for attention in ("sdpa", "eager"):
        with contextlib.suppress(ValueError):  # not every model has SDPA
            if any(folder.glob("*.safetensors")):
                module, about = kind.from_pretrained(folder, config=config, local_files_only=True, attn_implementation=attention,
                                                     output_loading_info=True)
                if about["missing_keys"]:
                    print(f"new weights: {', '.join(sorted(about['missing_keys']))} (not in the files of {folder})")
            else:
                module = kind._from_config(config, attn_implementation=attention)
            break
    taken = inspect.signature(kind.forward).parameters
    wanted = ["pixel_values", "input_ids", "attention_mask", "token_type_ids", "decoder_input_ids"]
    is_of_text = "input_ids" in taken
    names = [name for name in wanted if name in taken and (is_of_text or name == "pixel_values")]
    pick = logits_of
    if arguments.loss:
        labels = ["labels"] if "labels" in taken else ["start_positions", "end_positions"]
        names = [name for name in names if name != "decoder_input_ids"] + labels
        pick = lambda output: output["loss"]  # noqa: E731
    inputs = {name: example_of(name, config) for name in names}
    if arguments.loss and "labels" in inputs and "Classification" in arguments.transformers and "Token" not in arguments.transformers:
        inputs["labels"] = torch.randint(0, config.num_labels, (SAMPLES,))
    return with_forward(module, names, pick), inputs


def make(arguments):
    """The module and its example inputs by the names of forward()."""
    if arguments.source:
        return from_file(arguments.source)
    return from_torchvision(arguments) if arguments.torchvision else from_transformers(arguments)
