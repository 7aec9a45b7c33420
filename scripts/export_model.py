#!/usr/bin/env python3
"""Exports a PyTorch model to a file that holds its program and its weights, and needs no Python to be read.

usage: scripts/export_model.py SOURCE --out m.pt2 [--loss]
       scripts/export_model.py --check RUN

SOURCE is one of
  FILE.py:FUNCTION                      FUNCTION() returns (module, example_inputs), the inputs as a tuple or, by the
                                        names of forward(), as a dict; two samples or more
  --torchvision NAME [--classes N] [--image-size S] [--weights NAME]
                                        a model of torchvision that classifies; its weights are new, or --weights
  --transformers CLASS --config DIR [--classes N]
                                        a model of transformers; DIR has its config.json, and its weights if there are
                                        any: else they are new

--loss: the first output is the loss, the mean over its targets. A second output that is a number counts these targets;
without it, every sample is one.
--check RUN: compares a run of the exported model with its PyTorch module, on one batch with the run's weights. It calls
build/release/sluice, or the program that SLUICE_BINARY names.

The size of the batch stays open; so does the length of texts (the second dimension of whole numbers) if the model allows
it. The file has the program of training and that of evaluation (evaluation.json).
Exit codes: 0 done, 1 --check found a difference, 2 bad usage, 3 the model cannot be exported, 8 the file cannot be written.
"""

import argparse
import collections
import contextlib
import io
import json
import logging
import os
import pathlib
import sys
import tempfile
import warnings
import zipfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.filterwarnings("ignore")

import export_regions
import torch
from export_sources import CannotExport, first_line, make

RANDOM = ("dropout", "bernoulli", "rand", "normal", "uniform", "multinomial")


def check_inputs(inputs):
    for name, value in inputs.items():
        if not isinstance(value, torch.Tensor):
            raise CannotExport(f"the example of {name} is no tensor; give a tensor, or set it within the module")
        if value.dim() == 0 or value.shape[0] < 2:
            raise CannotExport(f"the example of {name} has the sizes {list(value.shape)}; the first must be a batch of two samples or more")
    if len({len(value) for value in inputs.values()}) > 1:
        raise CannotExport("the examples have different numbers of samples: " +
                           ", ".join(f"{name} has {len(value)}" for name, value in inputs.items()))


def check_outputs(exported, gives_loss):
    values = {node.name: node.meta.get("val") for node in exported.graph.nodes}
    tensors = [values[name] for name in exported.graph_signature.user_outputs if isinstance(values.get(name), torch.Tensor)]
    if not tensors or not tensors[0].is_floating_point():
        raise CannotExport("the first output of the module is no tensor of floating-point numbers; let forward() return logits or a loss")
    if gives_loss and tensors[0].dim() > 0:
        raise CannotExport("--loss: the first output of the module is no single number")
    if not gives_loss and tensors[0].dim() == 0:
        raise CannotExport("the first output of the module is a single number; if it is the loss, add --loss")


def export(module, inputs):
    """The program, with an open batch, and open lengths if the model allows it."""
    exported = export_with(module, inputs, torch.export.Dim.AUTO)
    if (guard := broken_guard(exported, inputs)) is None:
        return exported
    exported = export_with(module, inputs, torch.export.Dim.STATIC)
    if (other := broken_guard(exported, inputs)) is not None:
        raise CannotExport("the model fixes the size of the batch to that of the example inputs; take it from the input "
                           f"(x.size(0)), and do not turn it into a number of Python: {other}")
    print(f"the length of texts is fixed to that of the example, because the model turns it into a number of Python: {guard}")
    return exported


@contextlib.contextmanager
def kept_buffers(module):
    """Calls of the module within leave its buffers as they were."""
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    try:
        yield
    finally:
        with torch.no_grad():
            for name, buffer in module.named_buffers():
                buffer.copy_(buffers[name])


def broken_guard(exported, inputs):
    """What the program assumes of sizes that its open dimensions do not keep; None: nothing."""
    values = {node.name: node.meta.get("val") for node in exported.graph.nodes if node.op == "placeholder"}
    others = {}
    for name, value in inputs.items():
        others[name] = value[torch.arange(len(value) + 2) % len(value)]
        size = values[name].shape[1] if value.dim() > 1 else 0
        if isinstance(size, torch.SymInt) and size.node.expr in exported.range_constraints:
            largest = exported.range_constraints[size.node.expr].upper
            length = value.shape[1] + (2 if largest >= value.shape[1] + 2 else -1)
            others[name] = others[name][:, torch.arange(length) % value.shape[1]]
    module = exported.module()
    try:
        with torch.no_grad(), kept_buffers(module):
            module(**others)
    except AssertionError as error:
        if "Guard failed" in str(error):
            return first_line(error).removeprefix("Guard failed: ")
    except Exception:  # of other values, such as positions beyond a table
        pass
    return None


def export_with(module, inputs, lengths):
    opened = torch.export.Dim.DYNAMIC
    is_text = {name: value.dim() > 1 and not value.is_floating_point() for name, value in inputs.items()}
    sizes = {name: {0: opened, 1: lengths} if is_text[name] else {0: opened} for name in inputs}
    try:
        exported = torch.export.export(module, (), inputs, dynamic_shapes=sizes, strict=False)
    except Exception as error:
        if "specialized it to be a constant" in str(error) or "onstraint" in str(error):
            raise CannotExport("the model fixes the size of the batch to that of the example inputs; take it from the input "
                               f"(x.size(0)) and do not compare it: {first_line(error)}") from error
        raise CannotExport(f"torch.export: {type(error).__name__}: {first_line(error)}") from error
    return export_regions.without_regions(exported)


def first_output(output):
    return next(one for one in torch.utils._pytree.tree_leaves(output) if isinstance(one, torch.Tensor))


def gradients_of(module, inputs):
    """Of the sum of the first output."""
    parameters = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    torch.manual_seed(0)
    with kept_buffers(module):
        total = first_output(module(**{name: value.clone() for name, value in inputs.items()})).float().sum()
        if not total.requires_grad:
            raise CannotExport("the first output of the module depends on no parameter that is trained")
        gradients = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
    return {name: gradient for name, gradient in zip(parameters, gradients) if gradient is not None}


def relative_errors(found, wanted):
    """By name: the norm of the error, relative to that of the gradient, and at least to 1e-3 of the largest one's."""
    largest = max((gradient.norm() for gradient in wanted.values()), default=torch.zeros(()))
    return {name: ((found[name] - gradient).norm() / max(gradient.norm(), 1e-3 * largest)).item() for name, gradient in wanted.items()}


def check_gradients(module, exported, inputs):
    """The program has the module's gradients: torch.export leaves out the backward of an autograd.Function."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted, found = (gradients_of(one, inputs) for one in (module, exported.module()))
    zeros = {name: torch.zeros_like(gradient) for name, gradient in wanted.items()}
    for name, error in relative_errors(zeros | found, wanted).items():
        if error > 0.02:
            raise CannotExport(f"the exported program has another gradient of {name} than the module; an autograd.Function "
                               "or a hook is not exported: write it with PyTorch's own operations")


def program_json(exported):
    content = io.BytesIO()
    torch.export.save(exported, content)
    with zipfile.ZipFile(content) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("models/model.json")]
        return archive.read(name).decode()


def sizes_of(value):
    return "[" + ", ".join("open" if not isinstance(size, int) else str(size) for size in value.shape) + "]"


def report(exported, file):
    nodes = [node for node in exported.graph.nodes if node.op == "call_function"]
    operators = collections.Counter(str(node.target) for node in nodes)
    parameters = dict(exported.named_parameters())
    trained = sum(parameter.numel() for parameter in parameters.values() if parameter.requires_grad)
    values = {node.name: node.meta["val"] for node in exported.graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)}
    inputs = ", ".join(f"{name} {sizes_of(values[name])}" for name in exported.graph_signature.user_inputs if name in values)
    outputs = ", ".join(sizes_of(values[name]) for name in exported.graph_signature.user_outputs if name in values)
    random = sum(count for name, count in operators.items() if any(word in name for word in RANDOM))
    print(f"{file}: {file.stat().st_size / 2**20:.1f} MiB")
    print(f"parameters  {trained:,} in {len(parameters)} tensors, {sum(p.numel() for p in parameters.values()) - trained:,} more frozen")
    print(f"program     {len(nodes)} nodes of {len(operators)} operators, {random} of them random")
    print(f"takes       {inputs}")
    print(f"gives       {outputs}")


def write(exported, evaluation, file, source=None):
    part = file.with_name(file.stem + ".part")
    more = {"evaluation.json": program_json(evaluation)} | ({"source.json": json.dumps(source)} if source else {})
    content = io.BytesIO()  # on a full disk, the writer of torch.export ends the process
    torch.export.save(exported, content, extra_files=more)
    with zipfile.ZipFile(content, "a") as archive:  # LibTorch's reader does not look at those of the zip file
        folder = archive.namelist()[0].split("/")[0]
        sums = {entry.filename.removeprefix(folder + "/"): entry.CRC for entry in archive.infolist()}
        archive.writestr(f"{folder}/extra/crc32.json", json.dumps(sums))
    try:
        part.write_bytes(content.getbuffer())
        os.replace(part, file)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        print(f"export_model.py: cannot write {file}: {error.strerror}; free some space, or set another --out", file=sys.stderr)
        sys.exit(8)


def export_to(file, module, inputs):
    """Writes both programs, without how the module is made. Returns that of training."""
    exported = export(module.train(), inputs)
    write(exported, export(module.eval(), inputs), file)
    module.train()
    return exported


def source_of(arguments):
    """What make() needs to build the module again."""
    source = {name: getattr(arguments, name) for name in ("source", "torchvision", "classes", "image_size", "transformers", "loss")}
    if arguments.source:
        path, _, function = arguments.source.rpartition(":")
        source["source"] = f"{pathlib.Path(path).resolve()}:{function}"
    if arguments.transformers:
        source["config"] = json.loads((pathlib.Path(arguments.config) / "config.json").read_text())
    return source


def make_again(file):
    """The module that was exported to the file, with the weights in it, its example inputs, how it was made, and the export."""
    with zipfile.ZipFile(file) as archive:
        names = [name for name in archive.namelist() if name.endswith("extra/source.json")]
        if not names:
            raise CannotExport(f"{file} does not say how its module is made; export it again")
        source = json.loads(archive.read(names[0]))
    with tempfile.TemporaryDirectory() as folder:
        if source["transformers"]:
            (pathlib.Path(folder) / "config.json").write_text(json.dumps(source["config"]))
        module, inputs = make(argparse.Namespace(**{"weights": None, **source, "config": folder}))
    logging.getLogger("torch.export").setLevel(logging.ERROR)
    exported = torch.export.load(file)
    try:
        module.load_state_dict(exported.state_dict, strict=True)
    except RuntimeError as error:
        raise CannotExport(f"the module has other tensors than {file}, so it has changed since the export: "
                           f"{' '.join(str(error).split())}") from error
    return module, inputs, source, exported


def check_run(run):
    import check_exported
    try:
        agrees = check_exported.check(run)
    except (CannotExport, ImportError, OSError, RuntimeError, ValueError, KeyError) as error:
        print(f"export_model.py: --check {run}: {first_line(error)}", file=sys.stderr)
        sys.exit(3)
    print("both sides agree" if agrees else "the two sides DIFFER")
    sys.exit(0 if agrees else 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=True)
    parser.add_argument("source", nargs="?", metavar="FILE.py:FUNCTION")
    parser.add_argument("--torchvision", metavar="NAME")
    parser.add_argument("--classes", type=int, metavar="N", help="of the head; default: 1000, or as config.json says")
    parser.add_argument("--image-size", type=int, metavar="S", help="of --torchvision; default: 224")
    parser.add_argument("--weights", metavar="NAME")
    parser.add_argument("--transformers", metavar="CLASS")
    parser.add_argument("--config", metavar="DIR")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--loss", action="store_true", help="the module gives its loss, not logits")
    parser.add_argument("--check", metavar="RUN", help="compare a run of an exported model with its module")
    arguments = parser.parse_args()
    if arguments.check:
        check_run(arguments.check)
    if arguments.out is None:
        parser.error("--out is missing")
    if sum(source is not None for source in (arguments.source, arguments.torchvision, arguments.transformers)) != 1:
        parser.error("name one of FILE.py:FUNCTION, --torchvision and --transformers")
    if (arguments.transformers is None) != (arguments.config is None):
        parser.error("--transformers and --config belong together")
    if arguments.weights and not arguments.torchvision:
        parser.error("--weights is of --torchvision; a FILE.py or a folder with config.json has its own")
    if arguments.image_size and not arguments.torchvision:
        parser.error("--image-size is of --torchvision")
    if arguments.classes and arguments.source:
        parser.error("--classes is of --torchvision and --transformers; set it in FILE.py")
    arguments.image_size = arguments.image_size or 224
    if arguments.out.suffix != ".pt2":
        parser.error("--out must end with .pt2")
    try:
        module, inputs = make(arguments)
        check_inputs(inputs)
        exported = export(module.train(), inputs)
        check_outputs(exported, arguments.loss)
        check_gradients(module.train(), exported, inputs)
        evaluation = export(module.eval(), inputs)
        write(exported, evaluation, arguments.out, source_of(arguments))
    except CannotExport as error:
        print(f"export_model.py: {first_line(error)}", file=sys.stderr)
        sys.exit(3)
    except Exception as error:  # of the module, torchvision or transformers
        print(f"export_model.py: {type(error).__name__}: {first_line(error)}", file=sys.stderr)
        sys.exit(3)
    report(exported, arguments.out)


if __name__ == "__main__":
    main()
