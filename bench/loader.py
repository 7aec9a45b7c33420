"""Our loader beside torchvision's DataLoader, with the same transforms, one worker each: samples a second.

    bench/loader.py folder PATH [--size 224] | cifar10 PATH     [--batch 64] [--batches 10] [--rounds 5] [--patience 300]

folder: PATH/train/CLASS/PICTURE; random resized crop, flip, normalised. cifar10: the binary files; crop after padding
by 4, flip, normalised. The sides take turns. Ours has one thread that loads, theirs one process; "by CPU" are samples
per second of processor time, of all threads and processes of a side, which others on the machine disturb less. Of
torchvision's ways to decode (Pillow, its own decoder with tensors) both run, and the faster one is the peer.
"""

import argparse
import statistics
import sys
import time

import sides

OURS = sides.ROOT / "build" / "release" / "bench" / "bench_loader"
PEER = sides.BENCH / "peer_loader.py"


def by_cpu(side, samples):
    return [samples / (1e-3 * result["cpu_ms"]) for result in side.results]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["folder", "cifar10"])
    parser.add_argument("path")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--patience", type=float, default=0, help="seconds to wait for a quiet machine, in all")
    args = parser.parse_args()
    sides.prepare(OURS)
    what = [args.kind, args.path, args.size, args.batch, args.batches, args.workers]
    commands = {"ours": [OURS, *what], "torchvision, Pillow": [sys.executable, "-W", "ignore", PEER, *what]}
    if args.kind == "folder":
        commands["torchvision, tensors"] = [*commands["torchvision, Pillow"], "--decoder", "torchvision"]
    with sides.open_all(commands) as opened:
        sides.warm_up(opened.values())
        sides.take_turns(opened.values(), args.rounds, time.monotonic() + args.patience)
        samples = args.batch * args.batches
        ours = opened["ours"]
        print(f"{'':22} {'samples/s':>10} {'ours / it':>10} {'by CPU':>10} {'ours / it':>10} {'others':>7}")
        for name, side in opened.items():
            ratio = statistics.median(a / b for a, b in zip(ours.values("samples_per_s"), side.values("samples_per_s")))
            cpu = statistics.median(a / b for a, b in zip(by_cpu(ours, samples), by_cpu(side, samples)))
            print(f"{name:22} {side.median('samples_per_s'):10.0f} {ratio:10.2f} "
                  f"{statistics.median(by_cpu(side, samples)):10.0f} {cpu:10.2f} {side.median('others'):7.2f}")


if __name__ == "__main__":
    main()
