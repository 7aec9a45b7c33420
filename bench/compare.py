"""Ours beside PyTorch: samples/s of a training step, both sides alternating in one run; medians and a ratio.

    bench/compare.py [--rounds 9] [--steps 20] [--threads 2] [--batch 64] [--models resnet8 vit]
                     [--cases single stages replicas processes] [--json FILE]

Models: resnet8, vit and, when named, resnet18 (about 1.5 s a step). Cases, 32x32 images, --threads threads in all,
--batch samples in all: `single` = one device with all threads, `stages` = 2 stages, `replicas` = 2 local replicas,
`processes` = 2 processes of one device. The peer is PyTorch of the same version with as many threads, in one process,
for `processes` as DistributedDataParallel over Gloo; in its default memory format and in channels_last (the faster one
counts), with its fused optimizer. Needs build/release (scripts/bootstrap.sh) and the project's .venv. On a busy machine
look at the ratio of processor time too.
"""

import argparse
import json
import pathlib
import statistics
import sys

import sides

CASES = {
    "single": ["--stages", "1", "--replicas", "1", "--chunks", "1"],
    "stages": ["--stages", "2", "--replicas", "1", "--chunks", "4"],
    "replicas": ["--stages", "1", "--replicas", "2", "--chunks", "1"],
    "processes": ["--stages", "1", "--replicas", "1", "--chunks", "1"],
}
PEERS = {"torch": [], "torch channels_last": ["--layout", "channels_last"]}
RANKS = 2  # of the case `processes`


def commands(model, cases, args, ranks):
    common = [model, "--size", "tiny", "--batch", args.batch, "--threads", max(args.threads // ranks, 1), "--steps",
              args.steps]
    name = "{}" if ranks == 1 else "DDP {}"
    peers = {name.format(layout): [sys.executable, sides.PEER, *common, "--optimizer", "fused", *extra]
             for layout, extra in PEERS.items()}
    return peers, {case: [sides.OURS, *common, *CASES[case]] for case in cases}


def compare(model, cases, args, ranks=1):
    peers, ours = commands(model, cases, args, ranks)
    with sides.open_all(peers | ours, dict.fromkeys(peers | ours, ranks)) as opened:
        sides.take_turns(opened.values(), args.rounds)
    return rows_of(model, opened, peers, args)


def rows_of(model, opened, peers, args):
    best_peer = max(peers, key=lambda name: opened[name].median("samples_per_s"))
    rows = []
    for name, side in opened.items():
        rates = side.values("samples_per_s")
        rows.append(
            {
                "model": model,
                "threads": args.threads,
                "side": name,
                "samples_per_s": statistics.median(rates),
                "min": min(rates),
                "max": max(rates),
                "cpu_ms": side.median("cpu_ms"),
                "ratio": statistics.median(rates) / opened[best_peer].median("samples_per_s"),
                "cpu_ratio": opened[best_peer].median("cpu_ms") / side.median("cpu_ms"),
                "best_peer": best_peer,
            }
        )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--models", nargs="+", default=["resnet8", "vit"], choices=["resnet8", "resnet18", "vit"])
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--json", type=pathlib.Path, help="also write the rows here")
    args = parser.parse_args()
    sides.prepare()
    rows = []
    for model in args.models:
        local = [case for case in args.cases if case != "processes"]
        rows += compare(model, local, args) if local else []
        rows += compare(model, ["processes"], args, RANKS) if "processes" in args.cases else []
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
