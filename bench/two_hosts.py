"""Ours beside PyTorch's DistributedDataParallel over Gloo on two hosts: network namespaces with a limit on what each sends.

    bench/two_hosts.py [--rates 1gbit 100mbit] [--models resnet18 vgg16 vit] [--rounds 3] [--steps 2] [--json FILE]

Both sides take turns in the same namespaces: one process and one thread a host, 32x32 images, the same batch and optimizer
(bench/train_step.cpp, bench/peer_torch.py). The peer is eager PyTorch in its default memory format and in channels_last, its
buckets views of the gradients and of its own size; the faster form counts. Beside the rates stands what the network would
allow: the gradients' bytes once each way. Needs root, ip and tc, and build/release with the benchmarks.
"""

import argparse
import contextlib
import json
import pathlib
import sys

import sides

sys.path.insert(0, str(sides.ROOT / "tests" / "support"))
import hosts  # noqa: E402

BATCHES = {"resnet18": 64, "vgg16": 32, "vit": 64}  # samples a step, of both hosts together
RATES = {"1gbit": 1e9, "100mbit": 1e8}  # bits a second
MEGABYTES = {"resnet18": 44.7, "vgg16": 537.2, "vit": 21.4}  # of gradients: float32, 10 classes
PEERS = {"DDP": [], "DDP channels_last": ["--layout", "channels_last"]}


def compare(model, rate, args):
    common = [model, "--size", "tiny", "--batch", BATCHES[model], "--threads", 1, "--steps", args.steps]
    commands = {"ours": [sides.OURS, *common]}
    commands |= {name: [sys.executable, sides.PEER, *common, "--optimizer", "fused", *extra] for name, extra in PEERS.items()
                 if model != "vit" or not extra}
    with contextlib.ExitStack() as stack:
        # Each side on a network of its own, of which only the one that has its turn sends anything.
        opened = {name: stack.enter_context(sides.Side(command, network=stack.enter_context(hosts.Hosts(rate))))
                  for name, command in commands.items()}
        sides.warm_up(opened.values())
        sides.take_turns(opened.values(), args.rounds)
    best = sides.fastest({name: side for name, side in opened.items() if name != "ours"})
    floor_s = MEGABYTES[model] * 8e6 / RATES[rate]
    return [{"model": model, "rate": rate, "side": name, "step_s": side.median("step_ms") / 1e3,
             "steps_s": [round(value / 1e3, 3) for value in side.values("step_ms")], "network_s": floor_s,
             "ratio": opened[best].median("step_ms") / side.median("step_ms"), "loss": side.results[-1]["loss"],
             "others": side.median("others")} for name, side in opened.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", nargs="+", default=list(RATES), choices=list(RATES))
    parser.add_argument("--models", nargs="+", default=list(BATCHES), choices=list(BATCHES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path, help="also write the rows here")
    args = parser.parse_args()
    sides.prepare()
    if missing := hosts.missing():
        sides.fail(missing)
    rows = []
    print(f"{'model':9} {'rate':8} {'side':18} {'s a step':>9} {'network':>8} {'x DDP':>6} {'others':>7}  measured", flush=True)
    for rate in args.rates:
        for model in args.models:
            of_model = compare(model, rate, args)
            for row in of_model:
                print(f"{row['model']:9} {row['rate']:8} {row['side']:18} {row['step_s']:9.3f} {row['network_s']:8.3f} "
                      f"{row['ratio']:6.2f} {row['others']:7.2f}  {row['steps_s']}", flush=True)
            rows += of_model
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
