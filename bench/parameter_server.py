"""What a parameter server moves, beside what the machine carries and beside PyTorch's RPC parameter server.

    bench/parameter_server.py [--workers 1 2 4 8] [--megabytes 16] [--shards 4] [--seconds 1] [--rounds 5]
                              [--sides ours keys torch torch-tcp ...] [--patience 300] [--json FILE]

Every worker pushes so many megabytes of gradients and pulls as many of weights, again and again, and computes nothing;
the server makes an update (asp, SGD) of each push. GB/s are bytes pushed and pulled, of the server, in a second; each
worker and the server are processes of one thread of LibTorch, on this machine; ours works on its shards with one thread
a core (--shard-threads). All sides take turns; medians over the
rounds, ratios are medians of the rounds' ratios.

  tcp, zmq   the same exchange over plain TCP connections and as ZeroMQ's frames, with nothing done: limits
  memory     copied once in each direction: what shared memory could carry
  ours       over ZeroMQ and loopback TCP, without keys        keys       encrypted
  torch      bench/peer_rpc_server.py; between processes of a machine TensorPipe reads the other's memory
  torch-tcp  the same over TCP, as between machines

"least" is the share of the worker that got least, of an equal one (1 = all got the same). "others" is what other
programs used, in cores, in the median measurement of what was kept; --patience as in bench/pipelining.py.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import sides

OURS = sides.ROOT / "build" / "release" / "bench" / "bench_parameter_server"
PEER = sides.BENCH / "peer_rpc_server.py"
LIMITS = {"tcp": "tcp", "zmq": "frames", "memory": "memory"}
SERVERS = ("ours", "keys", "torch", "torch-tcp")


class ServerSide(sides.Side):
    """A limit, which is one process, or a server and its workers: rank 0 has counted."""

    def result_of(self, of_ranks):
        return of_ranks[0]


def commands(workers, keys, args):
    common = ["--megabytes", args.megabytes, "--shards", args.shards, "--seconds", args.seconds]
    ours = [OURS, "--what", "server", *common]
    all_sides = {name: [OURS, "--what", what, "--workers", workers, *common] for name, what in LIMITS.items()}
    all_sides |= {
        "ours": ours,
        "keys": [*ours, "--keys", keys],
        "torch": [sys.executable, "-W", "ignore", PEER, *common, "--transport", "any"],
        "torch-tcp": [sys.executable, "-W", "ignore", PEER, *common, "--transport", "tcp"],
    }
    return {name: all_sides[name] for name in args.sides}


def measure(workers, keys, args):
    asked = commands(workers, keys, args)
    with contextlib.ExitStack() as stack:
        opened = {name: stack.enter_context(ServerSide(command, workers + 1 if name in SERVERS else 1))
                  for name, command in asked.items()}
        sides.warm_up(opened.values())
        sides.take_turns(opened.values(), args.rounds, args.until)
    return {
        "workers": workers,
        "gb_per_s": {name: side.median("bytes_per_s") * 1e-9 for name, side in opened.items()},
        "least": {name: side.median("least_share") for name, side in opened.items() if name in SERVERS},
        "ours_over": {name: median_ratio(opened["ours"], side) for name, side in opened.items() if "ours" in opened},
        "others": {name: side.median("others") for name, side in opened.items()},
        "results": {name: side.results for name, side in opened.items()},
    }


def median_ratio(side, other):
    return statistics.median(a / b for a, b in zip(side.values("bytes_per_s"), other.values("bytes_per_s")))


def print_row(row):
    print(f"\n{row['workers']} worker{'s' if row['workers'] > 1 else ''}")
    print(f"  {'':10} {'GB/s':>7} {'ours / it':>10} {'least':>7} {'others':>7}")
    for name, rate in row["gb_per_s"].items():
        ratio = f"{row['ours_over'][name]:10.2f}" if name in row["ours_over"] else f"{'':10}"
        least = f"{row['least'][name]:7.2f}" if name in row["least"] else f"{'':7}"
        print(f"  {name:10} {rate:7.3f} {ratio} {least} {row['others'][name]:7.2f}")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--megabytes", type=float, default=16, help="of weights, and of gradients")
    parser.add_argument("--shards", type=int, default=4, help="tensors in which these are")
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sides", nargs="+", default=[*LIMITS, *SERVERS], choices=[*LIMITS, *SERVERS])
    parser.add_argument("--patience", type=float, default=0, help="seconds to wait for a quiet machine, in all")
    parser.add_argument("--json", type=pathlib.Path, help="also write the rows, with every measurement, here")
    args = parser.parse_args()
    sides.prepare(OURS)
    sides.prepare(sides.SLUICE)
    args.until = time.monotonic() + args.patience
    rows = []
    with tempfile.TemporaryDirectory() as keys:
        subprocess.run([sides.SLUICE, "make-keys", keys], check=True, stdout=subprocess.DEVNULL)
        for workers in args.workers:
            rows.append(measure(workers, keys, args))
            print_row(rows[-1])
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
