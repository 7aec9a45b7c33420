"""Ours beside PyTorch: samples/s of a training step, both sides alternating in one run; medians and a ratio.

    bench/compare.py [--rounds 9] [--steps 20] [--threads 2] [--models resnet8 vit] [--cases single stages replicas]
                     [--json FILE]

Models: resnet8, vit and, when named, resnet18 (about 1.5 s a step). Cases, batch 64, 32x32 images, --threads threads in
all: `single` = one device with all of them, `stages` = 2 stages, `replicas` = 2 local replicas. The peer is
single-process PyTorch of the same version with as many threads, in its default
memory format and in channels_last (the faster one counts), with its fused optimizer. Needs build/release
(scripts/bootstrap.sh) and the project's .venv. On a busy machine look at the ratio of processor time too.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OURS = ROOT / "build" / "release" / "bench" / "bench_train_step"
PEER = ROOT / "bench" / "peer_torch.py"
CASES = {
    "single": ["--stages", "1", "--replicas", "1", "--chunks", "1"],
    "stages": ["--stages", "2", "--replicas", "1", "--chunks", "4"],
    "replicas": ["--stages", "1", "--replicas", "2", "--chunks", "1"],
}
PEERS = {"torch": [], "torch channels_last": ["--layout", "channels_last"]}


class Side:
    """A process that times some steps for every line it is sent."""

    def __init__(self, command):
        env = os.environ | {"GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", "3000")}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.results = []

    def measure(self):
        self.process.stdin.write("run\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"compare.py: {self.process.args[0]} ended early with code {self.process.wait()}")
        self.results.append(json.loads(line))

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)

    def median(self, key):
        return statistics.median(result[key] for result in self.results)


def open_sides(model, cases, steps, threads):
    common = [model, "--size", "tiny", "--batch", "64", "--threads", str(threads), "--steps", str(steps)]
    sides = {name: Side([sys.executable, str(PEER), *common, "--optimizer", "fused", *extra]) for name, extra in PEERS.items()}
    sides |= {name: Side([str(OURS), *common, *CASES[name]]) for name in cases}
    return sides


def compare(model, cases, rounds, steps, threads):
    sides = open_sides(model, cases, steps, threads)
    for _ in range(rounds):
        for side in sides.values():
            side.measure()
    for side in sides.values():
        side.close()
    best_peer = max(PEERS, key=lambda name: sides[name].median("samples_per_s"))
    rows = []
    for name, side in sides.items():
        rates = [result["samples_per_s"] for result in side.results]
        rows.append(
            {
                "model": model,
                "threads": threads,
                "side": name,
                "samples_per_s": statistics.median(rates),
                "min": min(rates),
                "max": max(rates),
                "cpu_ms": side.median("cpu_ms"),
                "ratio": statistics.median(rates) / sides[best_peer].median("samples_per_s"),
                "cpu_ratio": sides[best_peer].median("cpu_ms") / side.median("cpu_ms"),
                "best_peer": best_peer,
            }
        )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--models", nargs="+", default=["resnet8", "vit"], choices=["resnet8", "resnet18", "vit"])
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--json", type=pathlib.Path, help="also write the rows here")
    args = parser.parse_args()
    if not OURS.exists():
        sys.exit(f"compare.py: {OURS.relative_to(ROOT)} is missing; run scripts/bootstrap.sh")
    rows = []
    for model in args.models:
        rows += compare(model, args.cases, args.rounds, args.steps, args.threads)
    print(f"{'model':8} {'side':20} {'samples/s':>10} {'min':>9} {'max':>9} {'x torch':>8} {'cpu ms':>8} {'x torch':>8}")
    for row in rows:
        print(
            f"{row['model']:8} {row['side']:20} {row['samples_per_s']:10.1f} {row['min']:9.1f} {row['max']:9.1f} "
            f"{row['ratio']:8.2f} {row['cpu_ms']:8.2f} {row['cpu_ratio']:8.2f}"
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
