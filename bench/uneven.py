"""Two processes of unequal speed: shares of a batch that follow the speed (replicas.shares) against equal ones.

    bench/uneven.py [--model resnet8] [--steps 120] [--rounds 3] [--json FILE]

One machine, one process and one core for each of two replicas. A program that only computes shares the second core, so
that this replica gets half of it: speeds are 2 : 1. Runs alternate. A step's time is the median of the last half of the
run. With unequal speeds 2 : 1, equal shares take 2 units of time, and shares 2 : 1 take 4/3 of one: at best 1.5.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import sides

sys.path.insert(0, str(sides.ROOT / "tests" / "support"))
import sluice_cli as cli  # noqa: E402

SETTINGS = {"data": {"name": "shapes", "samples": 2000}, "device": {"list": "cpu", "threads": 1},
            "log": {"tensorboard": False}, "checkpoint": {"every_steps": 0, "at_end": False}}
CHOICES = {"equal": {}, "measured": {"replicas": {"shares": "measured"}}}
BY_LAYOUT = {"reproducible": "layout", "micro_batch": 4}


def time_run(args, choice, by_layout, folder):
    """Median step time in ms of one run of two processes, and its last shares."""
    run = folder / f"{choice}-{by_layout}-{len(list(folder.iterdir()))}"
    train = {"global_batch": 48, "optimizer": "adamw", "lr": 1e-4, "steps": args.steps, "eval_every_steps": 10**6} | (BY_LAYOUT if by_layout else {})
    words = cli.options(model={"name": args.model}, **SETTINGS, train=train, **CHOICES[choice])
    (folder / "empty.toml").write_text("", encoding="utf-8")
    port = cli.free_port()
    processes = []
    for rank in range(2):
        environment = cli.rank_environment(rank, 2, port) | {"GOMP_SPINCOUNT": sides.OUR_SPIN}
        processes.append(subprocess.Popen(
            [str(word) for word in (sides.SLUICE, "train", folder / "empty.toml", "--run-dir", run, "--quiet", *words)],
            env=environment, stderr=subprocess.PIPE, preexec_fn=lambda core=rank: os.sched_setaffinity(0, {core})))
    for process in processes:
        _, error = process.communicate()
        if process.returncode != 0:
            raise SystemExit(error.decode())
    times = cli.column(run, "step_ms")
    changes = cli.events(run, "replan")
    return statistics.median(times[len(times) // 2:]), changes[-1]["shares"] if changes else [1, 1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet8")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    sides.prepare(sides.SLUICE)
    # Another session, so that the scheduler weighs it as much as the run.
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True,
                             preexec_fn=lambda: os.sched_setaffinity(0, {1}))
    rows = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            for by_layout in (False, True):
                times = {choice: [] for choice in CHOICES}
                shares = []
                for _ in range(args.rounds):
                    for choice in CHOICES:
                        time, last = time_run(args, choice, by_layout, pathlib.Path(folder))
                        times[choice].append(time)
                        if choice == "measured":
                            shares.append(last)
                medians = {choice: statistics.median(of_choice) for choice, of_choice in times.items()}
                rows.append({"model": args.model, "reproducible": "layout" if by_layout else "off", "step_ms": times, "shares": shares,
                             "ratio": medians["equal"] / medians["measured"]})
                print(f"{args.model}, train.reproducible = {rows[-1]['reproducible']}: equal {medians['equal']:.1f} ms, "
                      f"measured {medians['measured']:.1f} ms: {rows[-1]['ratio']:.2f}x; shares {shares}", flush=True)
    finally:
        other.kill()
    if args.json:
        args.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
