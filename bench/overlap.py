#!/usr/bin/env python3
"""How much of the exchange hides behind backward, by schedule, over a slow network between two hosts (network
namespaces). Two binaries, one before and one after a change, take turns.

    overlap.py [--sync all-reduce|ps] [--binaries BEFORE AFTER] [--schedules 1f1b zb-h1] [--rate 100mbit] [--rounds 3]

With all-reduce the exposed part of it in a step; with ps one worker and its server (asp, with keys): what passes between
two updates, and from the end of backward until the server has the push. Needs root, ip and tc.
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
{sync}
[log]
every = 1
"""
OF_SERVER = """sync = "ps"
[ps]
policy = "asp"
placement = "rank0"
keys = "keys"
worker_batch = 96
"""


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--sync", choices=["all-reduce", "ps"], default="all-reduce")
    parser.add_argument("--binaries", nargs="+", default=[str(ROOT / "build/release/sluice")])
    parser.add_argument("--schedules", nargs="+", default=["1f1b", "zb-h1"])
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def train(binary, schedule, rate, sync):
    """What rank 0 says of the steps but the first, in metrics.jsonl."""
    with tempfile.TemporaryDirectory() as folder, hosts.Hosts(rate) as pair:
        folder = pathlib.Path(folder)
        config = folder / "config.toml"
        config.write_text(CONFIG.format(steps=STEPS, schedule=schedule, sync=OF_SERVER if sync == "ps" else ""))
        cli.BINARY = binary
        if sync == "ps":
            cli.run("make-keys", folder / "keys")
        done = cli.finish_all([pair.start(i, "train", config, "--run-dir", folder / f"run{i}", cwd=folder)
                               for i in range(2)])
        for process in done:
            if process.returncode != 0:
                sys.exit(f"overlap.py: {binary} with {schedule} ended with {process.returncode}: {process.stderr[-400:]}")
        return cli.events(folder / "run0", "push" if sync == "ps" else "step")[1:]


def row_of(steps, sync):
    """Milliseconds, by column."""
    median = lambda column: statistics.median(column(step) for step in steps)  # noqa: E731
    if sync == "ps":
        return {"step": 1e3 * median(lambda push: push["compute_s"] + push["idle_s"]),
                "send": 1e3 * median(lambda push: push["send_s"])}
    return {"step": median(lambda step: step["step_ms"]), "all-reduce": median(lambda step: step["allreduce_ms"]),
            "exposed": median(lambda step: step["allreduce_exposed_ms"])}


def main():
    chosen = options()
    if reason := hosts.missing():
        sys.exit(f"overlap.py: {reason}")
    steps = {}
    for _ in range(chosen.rounds):
        for schedule in chosen.schedules:
            for binary in chosen.binaries:
                steps.setdefault((schedule, binary), []).extend(train(binary, schedule, chosen.rate, chosen.sync))
    print(f"medians of {chosen.rounds * (STEPS - 1)} steps, ms")
    for number, ((schedule, binary), all_steps) in enumerate(steps.items()):
        row = row_of(all_steps, chosen.sync)
        if number == 0:
            print(f"{'schedule':12}" + "".join(f" {name:>10}" for name in row) + "  binary")
        print(f"{schedule:12}" + "".join(f" {value:10.0f}" for value in row.values()) + f"  {binary}")


if __name__ == "__main__":
    main()
