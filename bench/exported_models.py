#!/usr/bin/env python3
"""Trains exported PyTorch models by `sluice step` in several plans, and compares loss and gradients with PyTorch's.

    exported_models.py [--only torchvision|transformers|own] [--models NAMES] [--largest 200M] [--json FILE] [--keep DIR]

PyTorch computes the same micro-batches one by one. In float64 the relative error of each gradient is at most 1e-10. In
float32 it is at most four times that of PyTorch itself, plus 1e-5; both are measured against float64. Models whose code
converts to float32 are exported in float64 for the first comparison, because Sluice runs the export's type in its own.

Prints a line for each model: the worst error as a share of its bound, for each plan, in float64 and in float32.
Exit codes: 0 all models that torch.export takes pass, 1 some do not, 2 bad usage.
"""

import argparse
import copy
import dataclasses
import gc
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import exported_model_list
import torch
from exported_model_list import ROOT, VOCABULARY

import export_model
from export_sources import CannotExport
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

CANNOT_RECOMPUTE = "cannot be computed again"  # a layer that reads a buffer which training changes
SAMPLES, NO_TARGET = 7, -100  # samples that two and three micro-batches divide unevenly
BATCHES = 3
PLANS = {  # by name: devices, micro-batches, schedule, recompute
    "one device": (1, 1, "gpipe", "none"),
    "2 x 1f1b": (2, 2, "1f1b", "none"),
    "2 x gpipe, recompute": (2, 2, "gpipe", "layer"),
    "3 x zb-h1": (3, 3, "zb-h1", "none"),
}
PRECISIONS = {"fp64": torch.float64, "fp32": torch.float32}


@dataclasses.dataclass
class Result:
    name: str
    source: str
    outcome: str = "failed"  # passed, failed, not compared, refused by torch.export, left out
    parameters: int = 0
    exported_in_float64: bool = False
    errors: dict = dataclasses.field(default_factory=dict)  # "fp64 PLAN" -> worst error / bound, and of which tensor
    messages: list = dataclasses.field(default_factory=list)
    layers: int = 0
    batches: int = 1
    seconds: float = 0.0


def layers_of(binary, folder, file):
    """The number of layers that sluice makes of the model, which it names when it refuses another one. 0: it fails earlier."""
    found = re.search(r"but pt2 has (\d+)", str(run_sluice(binary, folder, file, "one device", "fp32", [1000000])))
    return int(found[1]) if found else 0


def run_sluice(binary, folder, file, plan, precision, partition):
    """The tensors of one step, or the message of its error."""
    stages, chunks, schedule, recompute = PLANS[plan]
    (folder / "step.toml").write_text(f"""device = {{ list = "cpu", threads = 1 }}
model = {{ name = "pt2", file = "{file}" }}
train = {{ global_batch = {SAMPLES}, precision = "{precision}", optimizer = "sgd" }}
pipeline = {{ stages = {stages}, chunks = {chunks}, schedule = "{schedule}", recompute = "{recompute}", \
partition = {partition} }}
""")
    out = folder / "out.safetensors"
    words = [binary, "--quiet", "step", folder / "step.toml", "--batch", folder / "batch.safetensors", "--out", out]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(folder)}
    try:
        done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=900)
    except subprocess.TimeoutExpired:
        return "no result after 900 s"
    if done.returncode != 0:
        return f"exit code {done.returncode}: {done.stderr.strip()}"
    tensors = load_file(out)
    out.unlink()
    return tensors


def is_open(exported, name):
    """Whether the second dimension of an input is open: it has a formula, not a number."""
    values = {node.name: node.meta.get("val") for node in exported.graph.nodes if node.op == "placeholder"}
    return values[name].dim() > 1 and not str(values[name].shape[1]).isdigit()


def make_batch(model, module, inputs, exported):
    """Inputs and targets of SAMPLES samples, longer than the example if the export allows that."""
    longer = 2 if any(is_open(exported, name) for name in inputs) else 0
    batch = {}
    for name, example in inputs.items():
        sizes = (SAMPLES, *example.shape[1:])
        if example.dim() == 2 and (longer and is_open(exported, name)):
            sizes = (SAMPLES, example.shape[1] + longer)
        if example.is_floating_point():
            batch[name] = torch.randn(sizes)
        elif name == "attention_mask":
            lengths = torch.randint(sizes[1] // 2, sizes[1] + 1, (SAMPLES, 1))
            batch[name] = (torch.arange(sizes[1]) < lengths).long()
        else:
            batch[name] = torch.randint(0, model.numbers.get(name, VOCABULARY), sizes)
    if model.has_loss:
        batch["targets"][0, 1:] = NO_TARGET
        return batch
    with torch.no_grad():
        logits = logits_of(copy.deepcopy(module)(**batch))
    if len(model.targets) == 2:
        return batch | {name: torch.randint(0, logits.shape[1], (SAMPLES,)) for name in model.targets}
    targets = torch.randint(0, logits.shape[-1], logits.shape[:-1])
    if targets.shape == batch.get("attention_mask", torch.empty(0)).shape:
        targets[batch["attention_mask"] == 0] = NO_TARGET
    return batch | {"targets": targets}


def logits_of(output):
    """[n, ..., classes]: maps have the classes in the second dimension."""
    output = export_model.first_output(output)
    return output.movedim(1, -1) if output.dim() > 3 else output


def loss_sum(model, module, batch, names):
    """The loss of a micro-batch, summed over its targets."""
    output = module(**{name: batch[name].clone() for name in names})
    if model.has_loss:
        return output[0] * output[1]
    logits = logits_of(output)
    scores = [logits] if len(model.targets) == 1 else [logits[..., 0], logits[..., 1]]
    return sum(F.cross_entropy(score.flatten(0, -2), batch[name].flatten(), reduction="sum", ignore_index=NO_TARGET)
               for score, name in zip(scores, model.targets))


def eager_step(model, module, batch, names, chunks):
    """Loss and gradients of PyTorch, micro-batch by micro-batch. The module stays as it was."""
    module = copy.deepcopy(module)
    [dtype] = {parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()}
    batch = {name: value.to(dtype) if value.is_floating_point() else value for name, value in batch.items()}
    count = sum((batch[name] != NO_TARGET).sum() for name in model.targets)
    loss = 0.0
    for values in zip(*(value.tensor_split(chunks) for value in batch.values())):
        of_piece = loss_sum(model, module, dict(zip(batch, values)), names) / count
        of_piece.backward()
        loss += of_piece.item()
    parameters = module.named_parameters()
    gradients = {f"grad/{name}": parameter.grad for name, parameter in parameters if parameter.grad is not None}
    return {"loss": torch.tensor(loss, dtype=torch.float64), **gradients}


def compare(found, wanted, own_errors=None):
    """The worst error as a share of its bound, and the tensor that has it. own_errors: of PyTorch in float32, by tensor."""
    missing = sorted(name for name in wanted if name not in found)
    if missing:
        return float("inf"), f"{missing[0]} is missing ({len(missing)} tensors are)"
    more = sorted(name for name in found if name.startswith("grad/") and name not in wanted and found[name].any())
    if more:
        return float("inf"), f"{more[0]} is not 0, and PyTorch has no gradient"
    worst = (0.0, "")
    for name, error in errors_of(found, wanted).items():
        share = error / (1e-10 if own_errors is None else 4 * own_errors[name] + 1e-5)
        if not share <= worst[0]:
            worst = (share if share == share else float("inf"), name)
    return worst


def errors_of(found, wanted):
    """By tensor: the norm of the error, relative to that of the tensor, and at least to 1e-3 of all gradients'."""
    norms = {name: value.norm().item() for name, value in wanted.items()}
    least = 1e-3 * sum(norm**2 for name, norm in norms.items() if name != "loss")**0.5
    return {name: (found[name].double() - value).norm().item() / max(norms[name], 0 if name == "loss" else least)
            for name, value in wanted.items()}


def converts_to_float32(exported):
    calls = [node for node in exported.graph.nodes if node.op == "call_function"]
    return any(torch.float32 in (*node.args, *node.kwargs.values()) for node in calls)


def in_float64(inputs):
    return {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}


class Bench:
    """One exported model with its files."""

    def __init__(self, model, module, inputs, files, folder, binary):
        self.model, self.module, self.names = model, module, list(inputs)
        self.files, self.folder, self.binary = files, folder, binary
        self.double = copy.deepcopy(module).double()
        self.layers = {}  # by precision

    def partition(self, plan, precision):
        """As many layers in each stage; all in one if their number is unknown."""
        layers = self.layers[precision]
        stages = PLANS[plan][0] if layers >= PLANS[plan][0] else 1
        return [max(layers, 1) * (i + 1) // stages - layers * i // stages for i in range(stages)]

    def own_errors(self, batch, chunks, wanted, roundings):
        """Of PyTorch in float32. If there are several roundings, of weights with other last bits, the worst of all gradients."""
        worst = {name: 0.0 for name in wanted}
        for rounding in range(roundings):
            module = copy.deepcopy(self.module)
            with torch.no_grad():
                for parameter in module.parameters() if rounding > 0 else ():
                    parameter.mul_(1 + (torch.rand_like(parameter) - 0.5) * torch.finfo(torch.float32).eps * 2)
            errors = errors_of(eager_step(self.model, module, batch, self.names, chunks), wanted)
            worst = {name: max(error, errors[name]) for name, error in worst.items()}
        return worst if roundings == 1 else dict.fromkeys(worst, max(worst.values()))

    def run(self, batch, cases, roundings):
        """By case (plan, precision): the worst error and its tensor, or the message of sluice. It ends at a first refusal."""
        save_file({name: value.contiguous() for name, value in batch.items()}, self.folder / "batch.safetensors")
        self.layers = self.layers or {one: layers_of(self.binary, self.folder, file) for one, file in self.files.items()}
        outcomes = {}
        for chunks in sorted({PLANS[plan][1] for plan, _ in cases}):
            wanted = eager_step(self.model, self.double, batch, self.names, chunks)
            if not wanted["loss"].isfinite():
                raise ValueError(f"the loss of PyTorch itself is {wanted['loss'].item()}")
            own_errors = self.own_errors(batch, chunks, wanted, roundings)
            for plan, precision in (case for case in cases if PLANS[case[0]][1] == chunks):
                found = run_sluice(self.binary, self.folder, self.files[precision], plan, precision, self.partition(plan, precision))
                if isinstance(found, str) and PLANS[plan][3] != "none" and CANNOT_RECOMPUTE in found:
                    continue
                if isinstance(found, str):
                    outcomes[plan, precision] = found
                    if len(outcomes) == 1:
                        return outcomes
                    continue
                outcomes[plan, precision] = compare(found, wanted, own_errors if precision == "fp32" else None)
        return outcomes

    def run_all(self, make_batch, result):
        """Fills in errors and messages. In float32 rounding can change the sign of what a ReLU takes: then gradients differ by
        1e-2, those of PyTorch in different roundings too. So what exceeds its bound is compared again, with other batches and
        several roundings. Float64 has no such errors."""
        cases = [(plan, precision) for plan in PLANS for precision in PRECISIONS]
        outcomes = self.run(make_batch(), cases, roundings=1)
        for result.batches in range(1, BATCHES + 1):
            again = [case for case, outcome in outcomes.items()
                     if case[1] == "fp32" and not isinstance(outcome, str) and not outcome[0] <= 1]
            if not again or result.batches == BATCHES:
                break
            outcomes |= self.run(make_batch(), again, roundings=4)
        result.layers = self.layers["fp32"]
        for (plan, precision), outcome in outcomes.items():
            if isinstance(outcome, str):
                result.messages.append(f"{precision} {plan}: {outcome}")
                continue
            result.errors[f"{precision} {plan}"] = outcome
            if not outcome[0] <= 1:
                result.messages.append(f"{precision} {plan}: {outcome[1]}: {outcome[0]:.3g} times the bound")


def check_model(model, binary, folder, result):
    module, inputs = exported_model_list.make(model)
    result.parameters = sum(parameter.numel() for parameter in module.parameters())
    files = {precision: folder / "model.pt2" for precision in PRECISIONS}
    exported = export_model.export_to(files["fp32"], module, inputs)
    result.exported_in_float64 = converts_to_float32(exported)
    if result.exported_in_float64:
        files["fp64"] = folder / "model64.pt2"
        export_model.export_to(files["fp64"], copy.deepcopy(module).double(), in_float64(inputs))
    bench = Bench(model, module, inputs, files, folder, binary)
    bench.run_all(lambda: make_batch(model, module, inputs, exported), result)
    if not result.messages:
        result.outcome = "passed"


def check_refusal(model, binary, folder, result):
    """Sluice has to refuse the model in one line that says why."""
    module, inputs = exported_model_list.make(model)
    exported = export_model.export_to(folder / "model.pt2", module, inputs)
    save_file(make_batch(model, module, inputs, exported), folder / "batch.safetensors")
    found = run_sluice(binary, folder, folder / "model.pt2", "one device", "fp32", [1])
    result.messages = [found] if isinstance(found, str) else ["sluice runs it"]
    if model.refusal in result.messages[0] and "\n" not in result.messages[0]:
        result.outcome = "passed"


def run_model(model, binary, folder):
    """Exports the model, trains one step in each plan, and compares."""
    result, start = Result(model.name, model.source), time.monotonic()
    try:
        (check_refusal if model.refusal else check_model)(model, binary, folder, result)
    except CannotExport as error:
        result.outcome, result.messages = "refused by torch.export", [str(error)]
    except Exception as error:  # of PyTorch, or of what this bench makes
        result.outcome, result.messages = "not compared", [f"{type(error).__name__}: {error}"]
    result.seconds = time.monotonic() - start
    return result


def line_of(result):
    def shares(precision):
        return " ".join("%7.2g" % result.errors[f"{precision} {plan}"][0] if f"{precision} {plan}" in result.errors else "      -"
                        for plan in PLANS)
    head = f"{result.name:24} {result.parameters / 1e6:6.1f}M {result.layers:3} layers"
    if not result.errors and result.messages:
        return f"{head} {result.outcome}: {result.messages[0]}"
    mark, batches = "*" if result.exported_in_float64 else " ", f", {result.batches} batches" if result.batches > 1 else ""
    lines = [f"{head} {result.outcome:6}  fp64{mark} {shares('fp64')}  fp32 {shares('fp32')} {result.seconds:6.1f} s{batches}"]
    return "\n".join(lines + [f"    {message}" for message in result.messages])


def parameter_limit(text):
    units = {"K": 1e3, "M": 1e6, "G": 1e9}
    return float(text[:-1]) * units[text[-1]] if text[-1:] in units else float(text)


def summary(results):
    by = {}
    for result in results:
        by.setdefault(result.outcome, []).append(result.name)
    taken = len(by.get("passed", [])) + len(by.get("failed", []))
    lines = [f"{outcome}: {len(names)}" + (f" ({', '.join(names)})" if outcome != "passed" else "")
             for outcome, names in by.items()]
    return "\n".join(lines + [f"{len(by.get('passed', []))} of {taken} models that torch.export takes pass"])


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("torchvision", "transformers", "own"))
    parser.add_argument("--models", type=lambda text: text.split(","), metavar="NAMES")
    parser.add_argument("--largest", type=parameter_limit, default="200M", metavar="N", help="parameters of the largest model")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="keep the files of each model in DIR/NAME")
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "build/release/sluice")
    chosen, known = parser.parse_args(), exported_model_list.models()
    unknown = sorted(set(chosen.models or []) - set(known))
    if unknown or not chosen.binary.is_file():
        parser.error(f"no model {unknown[0]}" if unknown else f"{chosen.binary}: there is no such file")
    return chosen, [model for model in known.values()
                    if (not chosen.models or model.name in chosen.models) and chosen.only in (None, model.source)]


def main():
    torch.set_num_threads(1)
    chosen, models = options()
    results = []
    print(f"share of the bound for: {'; '.join(PLANS)}.  *: exported in float64", flush=True)
    for model in models:
        count = exported_model_list.parameters_of(model) if model.source == "torchvision" else 0
        if count > chosen.largest:
            results.append(Result(model.name, model.source, "left out", count, messages=[f"{count:,} parameters"]))
        elif chosen.keep:
            (chosen.keep / model.name).mkdir(parents=True, exist_ok=True)
            results.append(run_model(model, chosen.binary, (chosen.keep / model.name).resolve()))
        else:
            with tempfile.TemporaryDirectory() as folder:
                results.append(run_model(model, chosen.binary, pathlib.Path(folder)))
        print(line_of(results[-1]), flush=True)
        if chosen.json:
            chosen.json.write_text(json.dumps([dataclasses.asdict(result) for result in results], indent=1) + "\n")
        gc.collect()
    print(summary(results))
    sys.exit(1 if any(result.outcome in ("failed", "not compared") for result in results) else 0)


if __name__ == "__main__":
    main()
