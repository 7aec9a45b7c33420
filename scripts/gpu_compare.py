#!/usr/bin/env python3
"""Training steps on the GPU beside PyTorch's, eager and through torch.compile: samples/s and MFU. For scripts/gpu_check.sh.

usage: scripts/gpu_compare.py MODEL DIR
       scripts/gpu_compare.py --list

The sides take turns: a run of `sluice train` into DIR, then so many steps of each peer, ROUNDS times; medians and ratios.
All train fp32 with TF32 in products and convolutions (device.tf32), SGD with momentum, and the same model: the mean over
the wall time of the steps, ours without its wait for data, the peers' on one batch that lies on the GPU. MFU counts the
model's own operations (docs/profiling.md) by the GPU's peak for TF32.
Exit codes: 0 done, 2 bad usage, 70 a side failed.
"""

import contextlib
import json
import pathlib
import queue
import statistics
import subprocess
import sys
import threading

import gpu_measure

ROOT = pathlib.Path(__file__).resolve().parent.parent

# The one list of what is compared. `ours`: keys of the configuration; `twin`: of tests/models/torch_models.py.
BATCH, IMAGE = 64, 224
MODELS = {
    "resnet18": {"ours": {"model.name": "resnet18", "model.stem": "imagenet"}, "twin": {"name": "resnet18", "stem": "imagenet"}},
    "vit_b16": {"ours": {"model.name": "vit", "model.size": "base", "model.patch_size": 16},
                "twin": {"name": "vit", "size": "base", "patch": 16}},
}
PEERS = {"eager": [], "torch.compile": ["--compile"]}
ROUNDS, STEPS = 3, 30
PATIENCE_S = {"eager": 40, "torch.compile": 110}  # for a peer's first answer
# TF32 without sparsity, TFLOP/s, as NVIDIA's data sheets have it; the first name that fits.
PEAKS = (("H100 PCIe", 378), ("H100 NVL", 418), ("H100", 494), ("H200 NVL", 418), ("H200", 494), ("A100", 156))


def peak_of(gpu):
    """Nothing for a GPU that the table lacks."""
    return next((peak for name, peak in PEAKS if name in gpu), None)


def rate_of(lines):
    """(samples/s without the wait for data, FLOP of a sample) of our run."""
    steps = gpu_measure.steps_of(lines)
    before = lines[lines.index(steps[0]) - 1]
    wall_s = steps[-1]["time_s"] - before["time_s"]  # with what lies between the steps, as the peers' has
    rate = sum(step["samples"] for step in steps) / (wall_s - sum(step["load_ms"] for step in steps) / 1e3)
    flop = statistics.median(step["flops_per_s"] / step["samples_per_s"] for step in steps)
    return rate, flop


def summary(rates, flop, gpu):
    """rates: {side: samples/s of each round}, ours among them; a side without any was not available."""
    peak = peak_of(gpu)
    parts, ours = [], rates["ours"]
    for side, values in rates.items():
        if not values:
            parts.append(f"{side}: not available")
            continue
        rate = statistics.median(values)
        mfu = f"MFU {rate * flop / peak / 1e12:.1%}" if peak else f"{rate * flop / 1e12:.1f} model TFLOP/s"
        ratio = "" if side == "ours" else f", ours x {statistics.median(a / b for a, b in zip(ours, values)):.2f}"
        parts.append(f"{side} {rate:.0f} samples/s, {mfu}{ratio}")
    return "; ".join(parts)


def our_command(model, folder):
    keys = {"device.list": "cuda", "data.name": "shapes", "data.samples": 2 * BATCH * STEPS, "data.workers": 8,
            "model.image_size": IMAGE, "train.global_batch": BATCH,
            "train.steps": gpu_measure.FIRST_STEPS + STEPS, "train.eval_limit": BATCH,
            "train.optimizer": "momentum", "train.lr": 0.001, "train.lr_schedule": "constant", "train.weight_decay": 0.0,
            "pipeline.stages": 1, "pipeline.chunks": 1, "replicas.local": 1, "log.every": 10, **MODELS[model]["ours"]}
    sets = [word for key, value in keys.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    return [ROOT / "build" / "release" / "sluice", "train", ROOT / "configs" / "quickstart.toml", *sets, "--run-dir", folder]


def peer_command(model, name):
    return [sys.executable, ROOT / "bench" / "peer_gpu.py", json.dumps(MODELS[model]["twin"]), str(BATCH), str(IMAGE), str(STEPS),
            *PEERS[name]]


class Peer:
    """A process that times STEPS steps for every line; not available where its first answer does not come."""

    def __init__(self, name, command):
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answers = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put("")

    def rate(self, patience_s):
        """Samples/s; nothing when it does not answer."""
        try:
            self.process.stdin.write("run\n")
            self.process.stdin.flush()
            line = self.answers.get(timeout=patience_s)
            return json.loads(line)["samples_per_s"]
        except (OSError, queue.Empty, ValueError):
            self.close()
            return None

    def close(self):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.kill()
        self.process.wait()


def compare(model, folder):
    rates = {"ours": [], **{name: [] for name in PEERS}}
    peers = [Peer(name, peer_command(model, name)) for name in PEERS]
    try:
        for peer in list(peers):  # the first turn warms it up
            if peer.rate(PATIENCE_S[peer.name]) is None:
                if peer.name == "eager":
                    raise ValueError("PyTorch's steps without torch.compile do not run, so there is nothing to compare with")
                print(f"{peer.name} is not available", flush=True)
                peers.remove(peer)
        for number in range(ROUNDS):
            run = pathlib.Path(folder) / f"ours-{number}"
            code = subprocess.run(our_command(model, run), check=False).returncode
            if code != 0:
                raise gpu_measure.NotAsItShould(f"our run ended with exit code {code}")
            rate, flop = rate_of(gpu_measure.lines_of(run))
            rates["ours"].append(rate)
            for peer in list(peers):
                its = peer.rate(patience_s=60)
                if its is None:
                    peers.remove(peer)
                    rates[peer.name].clear()
                else:
                    rates[peer.name].append(its)
            print(json.dumps({side: values[-1:] for side, values in rates.items()}), flush=True)
    finally:
        for peer in peers:
            peer.close()
    return rates, flop


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(MODELS))
        return 0
    if len(sys.argv) != 3 or sys.argv[1] not in MODELS:
        print(__doc__, file=sys.stderr)
        return 2
    gpu = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], check=True, capture_output=True, text=True)
    try:
        rates, flop = compare(*sys.argv[1:])
    except (gpu_measure.NotAsItShould, ValueError, OSError) as error:
        print(f"result: {error}")
        return 70
    print(f"result: {summary(rates, flop, gpu.stdout)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
