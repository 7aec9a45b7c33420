#!/usr/bin/env python3
"""The parts of scripts/gpu_check.sh that measure with PyTorch or read the records of a run.

usage: scripts/gpu_measure.py formats                  the error of fp32 products and convolutions with device.tf32 and without
                              rates                    matrix products of ViT-B/16, TFLOP/s
                              attention                each of LibTorch's kernels for attention, forward and backward
                              copies                   bandwidth between host and GPU and within it
                              kernels RUN              the longest kernels of a run and how much of a step the GPU was idle
                              recording DIR TRAIN...   what profile.level costs: the training command at each level in turn
                              settings DIR TRAIN...    the same for clipping, no_decay, LAMB and the average of the weights
                              idle DIR TRAIN...        how much of a step the GPU is idle, with 1 and 8 micro-batches and CUDA graphs
                              memory PROFILE           memory of devices, predicted beside measured
                              predicted PROFILE        the step, predicted beside measured; layers that are launch-bound
                              warnings DIR             warnings in the logs of a folder

Each prints its measurements and then a line `result: ...`. GPU times are those of events around repeated calls.
Exit codes: 0 done, 2 bad usage, 70 a check failed.
"""

import inspect
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

LEVELS = ("off", "events", "cupti")
SETTINGS = {"plain": {}, "clip_norm": {"train.clip_norm": 1}, "no_decay": {"train.no_decay": ["norm", "bias"]},
            "ema": {"train.ema_decay": 0.999}, "lamb": {"train.optimizer": "lamb"}}
ROUNDS = 3
FIRST_STEPS = 5  # they warm up
SEQUENCE_S = 0.1
MOST_LOAD = 0.05  # of a step: where it waits longer for data, what recording costs cannot be seen
MEMORY_SHORT = 0.9  # of what was measured: less predicted memory would let plans run out of it
TOKENS, WIDTH, HIDDEN = 64 * 197, 768, 3072  # of ViT-B/16 at 224 pixels, 64 images
PRODUCTS = {"query, key, value": (TOKENS, 3 * WIDTH, WIDTH), "attention output": (TOKENS, WIDTH, WIDTH),
            "MLP in": (TOKENS, HIDDEN, WIDTH), "MLP out": (TOKENS, WIDTH, HIDDEN)}
COPY_BYTES = 256 << 20
ATTENTIONS = {"ViT-B/16": (197, 12, False), "ViT-L/16": (197, 16, False), "GPT-2": (1024, 12, True)}  # tokens, heads, causal
FORMAT_ERRORS = {True: 1e-2, False: 1e-5}  # the largest with and without TF32
WARNING = re.compile("warning", re.IGNORECASE)


class CheckFailed(Exception):
    """A failed check: one sentence."""


# Pure functions of the numbers.

def lines_of(run):
    text = (pathlib.Path(run) / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def steps_of(lines):
    """The steps of a run without the first ones."""
    steps = [line for line in lines if line["event"] == "step"][FIRST_STEPS:]
    if not steps:
        raise CheckFailed(f"the run has no more than {FIRST_STEPS} steps")
    return steps


def step_ms(lines):
    """The median step without its wait for data."""
    return statistics.median(step["step_ms"] - (step["load_ms"] or 0) for step in steps_of(lines))


def tflops(shape, seconds):
    """TFLOP/s of the product of [m, k] and [k, n]."""
    rows, columns, inner = shape
    return 2 * rows * columns * inner / seconds / 1e12


def kernel_summary(lines, longest=5):
    """Text of the longest kernels, and the result: how much of a step the GPU worked."""
    kernels = next((line for line in lines if line["event"] == "kernels"), None)
    if kernels is None:
        raise CheckFailed("the run has no event `kernels`: CUPTI was not available")
    by_name = {}
    for row in kernels["rows"]:
        calls, time = by_name.get(row["kernel"], (0, 0.0))
        by_name[row["kernel"]] = (calls + row["calls"], time + row["time_ms"])
    whole = sum(time for _, time in by_name.values()) + kernels["rest_ms"]
    ordered = sorted(by_name.items(), key=lambda item: -item[1][1])
    table = [f"{time / kernels['steps']:9.3f} ms a step  {calls / kernels['steps']:7.1f} calls  {name}"
             for name, (calls, time) in ordered]
    step = step_ms(lines)
    busy = whole / kernels["steps"]
    names = ", ".join(f"{name.split('(')[0][:40]} {time / whole:.0%}" for name, (_, time) in ordered[:longest])
    return table, f"kernels {busy:.2f} ms of a step of {step:.2f} ms, idle {max(1 - busy / step, 0):.0%}; {names}"


def load_share(lines):
    """Share of the time that steps wait for data."""
    steps = steps_of(lines)
    return sum(step["load_ms"] for step in steps) / sum(step["step_ms"] for step in steps)


def turns_summary(times):
    """times: {name: [median step of each round, ms]}. The runs took turns, so each round is a comparison by itself."""
    first = next(iter(times))
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratios = {name: statistics.median(a / b for a, b in zip(times[name], times[first])) for name in times}
    return ", ".join(f"{name} {medians[name]:.2f} ms" + (f" (x {ratios[name]:.3f})" if name != first else "") for name in times)


def memory_summary(profile):
    """Raises CheckFailed if a device took more than predicted."""
    devices = profile["device_memory"]
    if not devices:
        raise CheckFailed("the profile has no memory of devices")
    text = ", ".join(f"{one['device']}: predicted {one['predicted_peak_bytes'] / 2**20:.0f} MiB, took "
                     f"{one['peak_bytes'] / 2**20:.0f} MiB (x {one['predicted_peak_bytes'] / one['peak_bytes']:.2f})"
                     for one in devices)
    if any(one["predicted_peak_bytes"] < MEMORY_SHORT * one["peak_bytes"] for one in devices):
        raise CheckFailed(text)
    return text


def predicted_summary(profile):
    """The step, and how the layers were timed at the largest size."""
    step, layers = profile["step"], profile["layers"]
    last = [layer["times"][-1] for layer in layers]
    bound = [layer["name"] for layer, times in zip(layers, last) if times.get("gpu", {}).get("launch_bound")]
    ways = ", ".join(sorted({times.get("timed_by", "clock") for times in last}))
    measured_s = step["median_without_load_s"]
    return (f"predicted {1e3 * step['predicted_s']:.2f} ms, measured without load {1e3 * measured_s:.2f} ms "
            f"(x {step['predicted_s'] / measured_s:.2f}); layers timed by {ways}, launch-bound {len(bound)} of {len(layers)}")


def warnings_of(texts):
    """{name: text} to the distinct lines with a warning, the first of each with its name."""
    found = {}
    for name, text in sorted(texts.items()):
        for line in text.splitlines():
            match = WARNING.search(line)
            if match:  # what differs before the word is the time of day
                found.setdefault(line[match.start():].strip(), f"{name}: {line.strip()}")
    return list(found.values())


# Measurements on the GPU.

def seconds_of(torch, call):
    """Seconds of a call, by events around a sequence of SEQUENCE_S; the shortest of three."""
    call()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def sequence(calls):
        first.record()
        for _ in range(calls):
            call()
        last.record()
        torch.cuda.synchronize()
        return first.elapsed_time(last) / 1e3 / calls

    calls = max(int(SEQUENCE_S / max(sequence(3), 1e-6)), 1)
    return min(sequence(calls) for _ in range(3))


def formats():
    """TF32 rounds factors to 10 bits: an error near 1e-3 of a product, where fp32 has 1e-6."""
    import torch  # pylint: disable=import-outside-toplevel
    for name in ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"):
        print(f"{name}={os.environ.get(name, '(not set)')}")
    torch.manual_seed(0)
    a, b = (torch.randn(1024, 1024, device="cuda") for _ in range(2))
    image, filters = torch.randn(16, 64, 32, 32, device="cuda"), torch.randn(64, 64, 3, 3, device="cuda")
    exact = {"products": a.double() @ b.double(),
             "convolutions": torch.nn.functional.conv2d(image.double(), filters.double(), padding=1)}
    parts = []
    for allowed in (True, False):
        # What device.tf32 sets (src/train/setup/model_options.cpp).
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
        plain = {"products": a @ b, "convolutions": torch.nn.functional.conv2d(image, filters, padding=1)}
        errors = {what: ((value.double() - exact[what]).norm() / exact[what].norm()).item() for what, value in plain.items()}
        parts.append(f"device.tf32 = {str(allowed).lower()}: " + ", ".join(f"{what} {error:.1e}" for what, error in errors.items()))
        if not max(errors.values()) <= FORMAT_ERRORS[allowed]:  # not a number fails, too
            raise CheckFailed("; ".join(parts) + f", expected the error of {'TF32' if allowed else 'fp32'}")
    return "; ".join(parts)


def rates():
    import torch  # pylint: disable=import-outside-toplevel
    best = {}
    for name, dtype, tf32 in (("fp32", torch.float32, False), ("TF32", torch.float32, True), ("bf16", torch.bfloat16, False)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        for what, (rows, columns, inner) in PRODUCTS.items():
            a, b = torch.randn(rows, inner, device="cuda", dtype=dtype), torch.randn(columns, inner, device="cuda", dtype=dtype)
            out = torch.empty(rows, columns, device="cuda", dtype=dtype)
            rate = tflops((rows, columns, inner), seconds_of(torch, lambda a=a, b=b, out=out: torch.mm(a, b.t(), out=out)))
            print(f"{name}  {what:18} [{rows}, {inner}] x [{inner}, {columns}]  {rate:7.1f} TFLOP/s")
            best.setdefault(name, []).append(rate)
    return ", ".join(f"{name} {min(values):.0f} to {max(values):.0f} TFLOP/s" for name, values in best.items())


def attention():
    """Compares the kernels, among which LibTorch chooses."""
    import torch  # pylint: disable=import-outside-toplevel
    from torch.nn.attention import SDPBackend, sdpa_kernel  # pylint: disable=import-outside-toplevel
    parts = []
    for model, (tokens, heads, causal) in ATTENTIONS.items():
        packed = torch.randn(32, tokens, 3, heads, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        query, key, value = packed.permute(2, 0, 3, 1, 4)
        times = {}
        for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH"):
            def once(query=query, key=key, value=value, packed=packed, causal=causal):
                out = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal)
                torch.autograd.grad(out.sum(), packed, retain_graph=True)  # of the views that all share
            try:
                with sdpa_kernel(getattr(SDPBackend, name)):
                    times[name.split("_")[0].lower()] = 1e3 * seconds_of(torch, once)
            except RuntimeError as error:
                print(f"{model}: {name} cannot be had: {error}")
        parts.append(f"{model}: " + ", ".join(f"{name} {time:.2f} ms" for name, time in times.items()))
    return "; ".join(parts) + " (32 samples, bf16)"


def copies():
    import torch  # pylint: disable=import-outside-toplevel
    gpu, other = (torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda") for _ in range(2))
    parts = []
    for name, host in (("pageable", torch.empty(COPY_BYTES, dtype=torch.uint8)),
                       ("pinned", torch.empty(COPY_BYTES, dtype=torch.uint8, pin_memory=True))):
        host.fill_(1)
        there = COPY_BYTES / seconds_of(torch, lambda host=host: gpu.copy_(host, non_blocking=True)) / 1e9
        back = COPY_BYTES / seconds_of(torch, lambda host=host: host.copy_(gpu, non_blocking=True)) / 1e9
        parts += [f"{name} to the GPU {there:.1f}", f"back {back:.1f}"]
    within = COPY_BYTES / seconds_of(torch, lambda: other.copy_(gpu)) / 1e9
    return ", ".join(parts) + f", within the GPU {within:.0f} GB/s (bytes copied)"


def run_with(name, keys, run, train):
    """The records of a training run with these keys."""
    sets = [word for key, value in keys.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    code = subprocess.run([*train, *sets, "--run-dir", run], check=False).returncode
    if code != 0:
        raise CheckFailed(f"the run with {name} ended with exit code {code}")
    return lines_of(run)


def turns(folder, variants, train, time_of):
    """{name: [time_of(name, records) of each round]}; variants: {name: keys}."""
    times = {name: [] for name in variants}
    for number in range(ROUNDS):
        for name in list(variants) if number % 2 == 0 else reversed(variants):  # so that a drift favours none
            times[name].append(time_of(name, run_with(name, variants[name], pathlib.Path(folder) / f"{name}-{number}", train)))
            print(f"{name}: {times[name][-1]:.3f} ms a step", flush=True)
    return turns_summary(times)


def recording(folder, *train):
    def time_of(level, lines):
        # Compares whole steps, because with "off" the wait for data is unknown.
        share = 0 if level == "off" else load_share(lines)
        if share > MOST_LOAD:
            raise CheckFailed(f"the steps with {level} wait {share:.0%} of their time for data, so that what "
                                "recording costs cannot be seen")
        return statistics.median(step["step_ms"] for step in steps_of(lines))
    return turns(folder, {level: {"profile.level": level} for level in LEVELS}, train, time_of)


def settings(folder, *train):
    return turns(folder, SETTINGS, train, lambda name, lines: step_ms(lines))


def idle(folder, *train):
    parts = []
    for chunks in (1, 8):
        for graphs in (False, True):
            name = f"{chunks} micro-batch{'es' if chunks > 1 else ''}{' in graphs' if graphs else ''}"
            keys = {"pipeline.chunks": chunks, "device.cuda_graphs": graphs, "profile.level": "cupti"}
            run = pathlib.Path(folder) / f"idle-{chunks}-{graphs}".lower()
            table, result = kernel_summary(run_with(name, keys, run, train))
            print(name, *table, sep="\n", flush=True)
            parts.append(f"{name}: " + result.split(";")[0])
    return "; ".join(parts)


def kernels(run):
    table, result = kernel_summary(lines_of(run))
    print("\n".join(table))
    return result


def load(file):
    return json.loads(pathlib.Path(file).read_text(encoding="utf-8"))


def warnings(folder):
    found = warnings_of({file.stem: file.read_text(encoding="utf-8", errors="replace")
                         for file in pathlib.Path(folder).glob("*.log") if file.stem != "warnings"})
    print("\n".join(found))
    return f"{len(found)}" + (": " + "; ".join(found)[:400] if found else "")


CHECKS = {"formats": formats, "rates": rates, "attention": attention, "copies": copies, "kernels": kernels, "recording": recording,
          "settings": settings, "idle": idle, "warnings": warnings, "memory": lambda file: memory_summary(load(file)), "predicted": lambda file: predicted_summary(load(file))}


def main():
    check = CHECKS.get(sys.argv[1]) if len(sys.argv) > 1 else None
    try:
        inspect.signature(check or main).bind(*sys.argv[2 if check else 0:])
    except TypeError:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print(f"result: {check(*sys.argv[2:])}")
    except CheckFailed as error:
        print(f"result: {error}")
        return 70
    return 0


if __name__ == "__main__":
    sys.exit(main())
