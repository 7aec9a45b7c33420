#!/usr/bin/env python3
"""Experiments that run `sluice train` several times and print one table.

usage: scripts/experiment.py single_dp_ddp [--scale small|full] [OPTIONS]

single_dp_ddp: the same model, data and global batch three ways that take turns:
  single   one device
  dp       replicas in one process, one a device
  ddp      processes on this machine, one device each, which meet on 127.0.0.1
The time of a step is the median of step_ms in metrics.jsonl after the warm-up, over all rounds.
  --scale small   2 CPU devices of one thread each, vgg16, batch 64: minutes (default)
  --scale full    4 GPUs, vgg16, batch 256, 4 loader workers

The data are synthetic images of CIFAR-10's shape, or CIFAR-10 from --data DIR. --set key=value comes last and holds for
every way. Exit codes: that of a run that fails; else 0.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
INTERRUPTED = 130
LOST_PEER = 5
BUG = 70
PEER_GRACE_S = 30  # how long the processes of a run may go on after one has failed
SCALES = {
    "small": {"device": "cpu", "devices": 2, "batch": 64, "steps": 6, "warmup": 2, "rounds": 2, "workers": 1},
    "full": {"device": "cuda", "devices": 4, "batch": 256, "steps": 100, "warmup": 20, "rounds": 5, "workers": 4},
}
WAYS = {"single": "one device", "dp": "replicas in one process", "ddp": "processes"}
# What another launcher may have left; a run of ours has only what it is given.
OTHER_LAUNCHERS = re.compile(r"(SLURM_|OMPI_|MASTER_|(LOCAL_)?(RANK|WORLD_SIZE)$)")


class RunFailed(Exception):
    """A run that did not end well; the code is sluice's."""

    def __init__(self, sentence, code):
        super().__init__(sentence)
        self.code = code


class Run:
    """One call of `sluice train`: its processes, their logs, its metrics. Ends what it started, whatever happens."""

    def __init__(self, name, folder):
        self.name = name
        self.folder = folder
        self.processes = []

    def train(self, command, world_size):
        self.folder.mkdir(parents=True)
        try:
            for rank in range(world_size):
                self._start([*command, "--run-dir", str(self.folder / "run")], rank, world_size)
            self._wait()
        finally:
            self._end()
        with open(self.folder / "run" / "metrics.jsonl", encoding="utf-8") as lines:
            return [event for event in map(json.loads, lines) if event["event"] == "step"]

    def _log(self, rank):
        return self.folder / f"rank{rank}.log"

    def _start(self, command, rank, world_size):
        environment = {name: value for name, value in os.environ.items() if not OTHER_LAUNCHERS.match(name)}
        environment.setdefault("GOMP_SPINCOUNT", "3000")
        if world_size > 1:
            if rank == 0:
                self.port = free_port()
            place = {"RANK": rank, "WORLD_SIZE": world_size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world_size}
            place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": self.port}
            environment |= {name: str(value) for name, value in place.items()}
        with open(self._log(rank), "wb") as log:
            self.processes.append(
                subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log))

    def _wait(self):
        failed = {}  # rank -> code, in the order of their ends
        deadline = None
        while len(failed) < len(self.processes) and (deadline is None or time.monotonic() < deadline):
            codes = [process.poll() for process in self.processes]
            failed |= {rank: as_shells_say(code) for rank, code in enumerate(codes) if code and rank not in failed}
            if None not in codes:
                break
            if failed and deadline is None:
                deadline = time.monotonic() + PEER_GRACE_S
            time.sleep(0.05)
        if failed:
            rank = next((rank for rank, code in failed.items() if code != LOST_PEER), next(iter(failed)))
            raise RunFailed(f"{self.name}, rank {rank}, ended with exit code {failed[rank]}: {self._last_line(rank)}", failed[rank])

    def _last_line(self, rank):
        lines = self._log(rank).read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")

    def _end(self):
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(timeout=PEER_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def as_shells_say(code):
    return code if code >= 0 else 128 - code  # ended by a signal


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def sets_of(way, options):
    """--set of one way."""
    devices = options.devices if way == "dp" else 1
    steps = options.warmup + options.steps
    values = {
        "device.list": options.device,
        "model.name": options.model,
        "data.name": "cifar10" if options.data else "shapes",
        "data.samples": options.batch * steps,
        "data.limit": options.batch * steps,
        "data.workers": options.workers,
        "train.global_batch": options.batch,
        "train.steps": steps,
        "train.lr": 0.01,
        "train.eval_every_steps": 1_000_000_000,  # only at the end
        "pipeline.stages": 1,
        "pipeline.chunks": 1,
        "replicas.local": devices,
        "log.tensorboard": "false",
    }
    if options.data:
        values["data.path"] = options.data.resolve()
    if options.device == "cpu":
        values["device.threads"] = 1  # a device is a core, however many are in use
    return [f"{key}={value}" for key, value in values.items()] + options.sets


def measure(way, round_number, options, folder):
    """The events of the steps after the warm-up."""
    command = [str(options.sluice), "train", str(ROOT / "configs" / "single_device.toml")]
    command += [word for value in sets_of(way, options) for word in ("--set", value)]
    run = Run(f"{way} in round {round_number}", folder / f"round{round_number}-{way}")
    steps = run.train(command, options.devices if way == "ddp" else 1)
    if len(steps) <= options.warmup:
        raise RunFailed(f"{run.name} made {len(steps)} steps; the warm-up alone takes {options.warmup}", BUG)
    return steps[options.warmup :]


def step_seconds(steps):
    return statistics.median(event["step_ms"] for event in steps) / 1000


def compare(options, folder):
    """The rows of the table: a way each."""
    measured = {way: [] for way in options.ways}
    for round_number in range(1, options.rounds + 1):
        for way in options.ways:
            say(f"round {round_number} of {options.rounds}: {way}")
            measured[way].append(measure(way, round_number, options, folder))
    rows = []
    for way, rounds in measured.items():
        medians = [step_seconds(steps) for steps in rounds]
        every = [event for steps in rounds for event in steps]
        step_s = step_seconds(every)
        rows.append({
            "way": way,
            "processes": options.devices if way == "ddp" else 1,
            "devices": 1 if way == "single" else options.devices,
            "step_s": step_s,
            "step_s_min": min(medians),
            "step_s_max": max(medians),
            "images_per_s": statistics.median(event["samples"] for event in every) / step_s,
        })
    for row in rows:
        row["speed_up"] = rows[0]["step_s"] / row["step_s"]
    return rows


def print_table(options, rows):
    print(f"{options.model}, {'cifar10' if options.data else 'shapes'}, global batch {options.batch}, "
          f"{options.device}; {options.rounds} rounds of {options.steps} steps after {options.warmup} of warm-up")
    print(f"{'way':8} {'':24} {'devices':>7} {'s / step':>9} {'of rounds':>15} {'images/s':>9} {'speed-up':>9}")
    for row in rows:
        spread = f"{row['step_s_min']:.3f}-{row['step_s_max']:.3f}"
        print(f"{row['way']:8} {WAYS[row['way']]:24} {row['devices']:7} {row['step_s']:9.3f} {spread:>15} "
              f"{row['images_per_s']:9.1f} {row['speed_up']:8.2f}x")
    for row in rows[1:]:
        print(f"{rows[0]['step_s']:.3f} s / {row['step_s']:.3f} s per step = {row['speed_up']:.2f}x ({row['way']})")


def say(sentence):
    print(f"experiment.py: {sentence}", file=sys.stderr, flush=True)


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("experiment", choices=["single_dp_ddp"])
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--model", default="vgg16", help="model.name (default: vgg16)")
    parser.add_argument("--data", type=pathlib.Path, metavar="DIR", help="folder of CIFAR-10")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="the first is what the others are compared with")
    for name, what in (("devices", "devices of dp and ddp"), ("batch", "train.global_batch"), ("steps", "steps measured a run"),
                       ("rounds", "runs of each way"), ("workers", "data.workers")):
        parser.add_argument(f"--{name}", type=positive, metavar="N", help=what)
    parser.add_argument("--warmup", type=positive, metavar="N", help="steps before those")
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="KEY=VALUE", help="one more value of the configuration")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="keep log and run directory of each run here; must not exist")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--sluice", type=pathlib.Path, default=ROOT / "build" / "release" / "sluice", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for name, value in SCALES[options.scale].items():
        if getattr(options, name, None) is None:
            setattr(options, name, value)
    if not os.access(options.sluice, os.X_OK):
        parser.exit(2, f"experiment.py: {options.sluice} is missing: run scripts/bootstrap.sh\n")
    if options.out and options.out.exists():
        parser.exit(2, f"experiment.py: --out {options.out} exists already: give another folder\n")
    return options


def main():
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(INTERRUPTED))
    with contextlib.ExitStack() as stack:
        folder = options.out or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-experiment-")))
        try:
            rows = compare(options, folder)
        except RunFailed as error:
            say(f"{error}{'' if options.out else ' (--out DIR keeps the logs)'}")
            sys.exit(error.code)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
    if options.json:
        kept = ("experiment", "scale", "model", "device", "batch", "rounds", "steps", "warmup")
        print(json.dumps({name: getattr(options, name) for name in kept} | {"sets": options.sets, "rows": rows}, indent=2))
    else:
        print_table(options, rows)


if __name__ == "__main__":
    main()
