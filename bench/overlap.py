#!/usr/bin/env python3
"""How much of the all-reduce hides behind backward, by schedule, over a slow network between two hosts (network
namespaces): the exposed part of it in a step. Two binaries, one before and one after a change, take turns.

    overlap.py [--binaries BEFORE AFTER] [--schedules 1f1b zb-h1] [--rate 100mbit] [--rounds 3]     needs root, ip and tc
"""

import argparse
import pathlib
import statistics
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))
import hosts  # noqa: E402
import sluice_cli as cli  # noqa: E402

STEPS = 4  # of which the first is not counted
CONFIG = """
[model]
name = "resnet18"
[data]
name = "shapes"
[train]
steps = {steps}
global_batch = 96
[device]
list = "cpu"
threads = 1
[pipeline]
stages = 2
chunks = 4
schedule = "{schedule}"
partition = [5, 5]
[replicas]
bucket_mb = 4
[log]
every = 1
"""


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--binaries", nargs="+", default=[str(ROOT / "build/release/sluice")])
    parser.add_argument("--schedules", nargs="+", default=["1f1b", "zb-h1"])
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def train(binary, schedule, rate):
    """The steps of rank 0 but the first, from metrics.jsonl."""
    with tempfile.TemporaryDirectory() as folder, hosts.Hosts(rate) as pair:
        folder = pathlib.Path(folder)
        config = folder / "config.toml"
        config.write_text(CONFIG.format(steps=STEPS, schedule=schedule))
        cli.BINARY = binary
        done = cli.finish_all([pair.start(i, "train", config, "--run-dir", folder / f"run{i}", cwd=folder)
                               for i in range(2)])
        for process in done:
            if process.returncode != 0:
                sys.exit(f"overlap.py: {binary} with {schedule} ended with {process.returncode}: {process.stderr[-400:]}")
        return cli.events(folder / "run0", "step")[1:]


def main():
    chosen = options()
    if reason := hosts.missing():
        sys.exit(f"overlap.py: {reason}")
    steps = {}
    for _ in range(chosen.rounds):
        for schedule in chosen.schedules:
            for binary in chosen.binaries:
                steps.setdefault((schedule, binary), []).extend(train(binary, schedule, chosen.rate))
    print(f"medians of {chosen.rounds * (STEPS - 1)} steps, ms")
    print(f"{'schedule':12} {'step':>8} {'all-reduce':>10} {'exposed':>8}  binary")
    for (schedule, binary), all_steps in steps.items():
        step, total, exposed = (statistics.median(s[name] for s in all_steps)
                                for name in ("step_ms", "allreduce_ms", "allreduce_exposed_ms"))
        print(f"{schedule:12} {step:8.0f} {total:10.0f} {exposed:8.0f}  {binary}")


if __name__ == "__main__":
    main()
