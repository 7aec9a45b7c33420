"""One run of `sluice train`, or of a program that measures: its processes, their logs, what it recorded. Ends what it started, whatever happens."""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import threading
import time

from . import namespaces, ranks

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BAD_USE = 2
BAD_DATA = 3
OUT_OF_MEMORY = 4
LOST_PEER = 5
DIVERGED = 6
BUG = 70
PEER_GRACE_S = 30  # how long the processes of a run may go on after one has failed


# Set by a signal handler, which must not raise: a process that is being started would then never be ended.
stopping = threading.Event()


class Interrupted(Exception):
    """The experiment was stopped; its processes have ended."""


class RunFailed(Exception):
    """A failed run, with the exit code of sluice."""

    def __init__(self, sentence, code):
        super().__init__(sentence)
        self.code = code


@dataclasses.dataclass(frozen=True)
class Planned:
    """A run of an experiment, without its results."""

    name: str  # its folder in --out, and its key in results.csv
    kind: str  # runs of one kind take about as long
    sets: dict  # --set; "{out}" in a value is the experiment's folder, and it may name more such places (runner.py)
    columns: dict = dataclasses.field(default_factory=dict)  # of its row, known before
    config: str = "single_device"  # of configs/
    program: tuple = ()  # in place of `sluice train`: a path beside sluice and options; it prints what it has measured
    processes: int = 1
    network: str = ""  # a rate, as tc has it: one process a host, in namespaces; empty: all on this machine
    title: str = ""  # in sentences; empty = name
    may_run_out: bool = False  # of memory: a result, no failure
    may_diverge: bool = False  # a result, no failure
    keep_checkpoints: bool = False

    @property
    def label(self):
        return self.title or self.name


class Run:

    def __init__(self, planned, folder):
        self.name = planned.label
        self.folder = folder
        self.world_size = planned.processes
        self.prints = bool(planned.program)
        self.network = namespaces.Namespaces(planned.network, planned.processes) if planned.network else None
        self.processes = []
        self.port = ranks.free_port() if planned.processes > 1 else None

    def carry_out(self, command):
        """Returns the events of rank 0, or the lines of another program."""
        self.folder.mkdir(parents=True)
        if not self.prints:
            command = [*command, "--run-dir", str(self.folder / "run")]
        with self.network or contextlib.nullcontext():
            try:
                for rank in range(self.world_size):
                    self._start(command, rank)
                self._wait()
            finally:
                self._end()
        return self._printed().read_text(encoding="utf-8").splitlines() if self.prints else events_of(self.folder)

    def _log(self, rank):
        return self.folder / f"rank{rank}.log"

    def _printed(self):
        return self.folder / "printed.txt"

    def _start(self, command, rank):
        environment = self._environment(rank)
        environment.setdefault("GOMP_SPINCOUNT", "3000")
        if self.network:
            command = self.network.command(rank, *command)
        with open(self._log(rank), "wb") as log, open(self._printed() if self.prints and rank == 0 else os.devnull, "wb") as printed:
            self.processes.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=printed, stderr=log))

    def _environment(self, rank):
        if self.network:
            return self.network.environment(rank)
        return ranks.rank_environment(rank, self.world_size, self.port) if self.port else ranks.environment_without_launchers()

    def _wait(self):
        failed = {}  # rank -> code, in the order of their ends
        deadline = None
        while len(failed) < len(self.processes) and (deadline is None or time.monotonic() < deadline):
            if stopping.is_set():
                break
            codes = [process.poll() for process in self.processes]
            failed |= {rank: as_shells_say(code) for rank, code in enumerate(codes) if code and rank not in failed}
            if None not in codes:
                break
            if failed and deadline is None:
                deadline = time.monotonic() + PEER_GRACE_S
            time.sleep(0.05)
        if stopping.is_set():  # the processes may have heard of it themselves
            raise Interrupted
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


def events_of(folder):
    """The events of the run in this folder; empty if it is missing."""
    path = folder / "run" / "metrics.jsonl"
    if not path.exists():
        return []
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def events_named(events, name):
    return [event for event in events if event["event"] == name]


def steps_after(planned, events, warmup):
    """Steps after the first `warmup` ones; at least one, or the --set of the user is an error."""
    steps = events_named(events, "step")
    if len(steps) <= warmup:
        raise RunFailed(f"{planned.label} made no step after the {warmup} of warm-up ({len(steps)} in all): leave train.steps and train.epochs to the "
                        "experiment, and give it more steps or epochs", BAD_USE)
    return steps[warmup:]


def evaluations_of(planned, events):
    return some_of("eval", "was never evaluated: leave train.eval_every_steps and train.eval_every_epochs", planned, events)


def epochs_of(planned, events):
    return some_of("epoch", "came to the end of no epoch: leave train.steps and train.epochs", planned, events)


def some_of(name, what, planned, events):
    found = events_named(events, name)
    if not found:
        raise RunFailed(f"{planned.label} {what} to the experiment", BAD_USE)
    return found


def as_shells_say(code):
    return code if code >= 0 else 128 - code  # ended by a signal
