"""What the drivers share: sides that take turns. A side is one program, in one or several processes, that times some
steps for every line it is sent and answers with a JSON object; so all sides meet the machine in the same state.

    with sides.open_all({"ours": [sides.OURS, "vit"], "torch": [sys.executable, sides.PEER, "vit"]}) as all_sides:
        sides.take_turns(all_sides.values(), rounds=9)
        print(all_sides["ours"].median("samples_per_s"))
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import sysconfig
import time

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parent

sys.path.insert(0, str(ROOT / "scripts"))
from experiments.ranks import environment_without_launchers, free_port, rank_environment  # noqa: E402

OURS = ROOT / "build" / "release" / "bench" / "bench_train_step"
SLUICE = ROOT / "build" / "release" / "sluice"
PEER = BENCH / "peer_torch.py"
PIPELINING_PEER = BENCH / "peer_pipelining.py"
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
OUR_SPIN = "3000"  # GOMP_SPINCOUNT as the `sluice` command sets it for itself
# What a peer may choose from: ours, libgomp's own, and one that spins through every pause inside of a step. (No
# OMP_WAIT_POLICY=active: such threads would never sleep while it is another side's turn.)
SPINS = (OUR_SPIN, "300000", "10000000")
QUIET = 0.1  # cores that other programs may use in a quiet measurement


def fail(what):
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {what}")


def prepare(program=OURS):
    """First: our program is there, and a SIGTERM ends the sides too, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if not program.exists():
        fail(f"{program.relative_to(ROOT)} is missing; run scripts/bootstrap.sh --tests")


def compiler_is_missing():
    """Why torch.compile cannot work here; empty where it can."""
    if not pathlib.Path(sysconfig.get_paths()["include"], "Python.h").exists():
        return "Python.h is missing (Debian: python3-dev)"
    return "" if shutil.which("g++") else "g++ is missing"


def environments(ranks, spin=OUR_SPIN):
    port = free_port()
    started = [rank_environment(rank, ranks, port) for rank in range(ranks)] if ranks > 1 else [environment_without_launchers()]
    return [environment | {"GOMP_SPINCOUNT": spin} for environment in started]


def machine_seconds():
    """Processor time of everything that ran since the machine was started."""
    user, nice, system, _idle, _wait, irq, softirq, steal = map(
        int, pathlib.Path("/proc/stat").read_text(encoding="ascii").split(maxsplit=9)[1:9])
    return TICK_S * (user + nice + system + irq + softirq + steal)


def process_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return TICK_S * (int(fields[11]) + int(fields[12]))


class Others:
    """Cores that programs other than these processes use, from its construction on."""

    def __init__(self, pids=()):
        self.pids = list(pids)
        self.began, self.ran = time.monotonic(), self._ran()

    def _ran(self):
        return machine_seconds() - sum(process_seconds(pid) for pid in self.pids)

    def cores(self):
        return max(self._ran() - self.ran, 0.0) / (time.monotonic() - self.began)


class Side:
    """Processes that time some steps for every line they are sent; the slowest of them counts.

    A context manager: its processes are gone when it is left."""

    def __init__(self, command, ranks=1, spin=OUR_SPIN, network=None):
        """network: hosts.Hosts on each of which one process runs."""
        self.command = [str(word) for word in command]
        if network is None:
            starts = [(self.command, env) for env in environments(ranks, spin)]
        else:
            # The peer's Gloo takes the interface of the host's name otherwise, which here is none of the network's.
            starts = [(network.command(i, *self.command), network.environment(i) | {"GOMP_SPINCOUNT": spin, "GLOO_SOCKET_IFNAME": cable})
                      for i, cable in enumerate(network.cables)]
        self.processes = [subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
                          for words, env in starts]
        self.results = []

    def measure(self, what="run"):
        """The result also says how many cores other programs used meanwhile (`others`)."""
        others = Others(process.pid for process in self.processes)
        with contextlib.suppress(BrokenPipeError):  # its answer, which is missing, will tell
            for process in self.processes:
                process.stdin.write(f"{what}\n")
                process.stdin.flush()
        of_ranks = [self._answer(process) for process in self.processes]
        cores = round(others.cores(), 2)
        self._let_threads_sleep()
        self.results.append(self.result_of(of_ranks) | {"others": cores})
        return self.results[-1]

    def result_of(self, of_ranks):
        slowest = min(of_ranks, key=lambda result: result["samples_per_s"])
        return slowest | {"cpu_ms": sum(result["cpu_ms"] for result in of_ranks)}

    def _let_threads_sleep(self):
        """Threads with a long GOMP_SPINCOUNT spin on after the last step: the next side must not meet them."""
        ran, patience = -1.0, time.monotonic() + 5
        while ran != (ran := sum(process_seconds(process.pid) for process in self.processes)) and time.monotonic() < patience:
            time.sleep(5 * TICK_S)

    def _answer(self, process):
        line = process.stdout.readline()
        if not line:
            fail(f"'{' '.join(self.command)}' ended early with code {process.wait()}")
        return json.loads(line)

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            for process in self.processes:
                process.stdin.close()
        for process in self.processes:
            process.wait(timeout=60)

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        try:
            if failure is None:
                self.close()
        finally:
            for process in self.processes:
                process.kill()
                process.wait()

    def values(self, key):
        return [result[key] for result in self.results]

    def median(self, key):
        return statistics.median(self.values(key))


@contextlib.contextmanager
def open_all(commands, ranks=None, spins=None):
    """commands: {name: command}; ranks: {name: processes}, 1 where it says nothing; spins: {name: GOMP_SPINCOUNT}."""
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(Side(command, (ranks or {}).get(name, 1), (spins or {}).get(name, OUR_SPIN)))
               for name, command in commands.items()}


def fastest(opened):
    return max(opened, key=lambda name: opened[name].median("samples_per_s"))


def best_spin(command, rounds=3):
    """The GOMP_SPINCOUNT with which a command of several threads is fastest, all tried in turns."""
    with open_all(dict.fromkeys(SPINS, command), spins={spin: spin for spin in SPINS}) as opened:
        warm_up(opened.values())
        take_turns(opened.values(), rounds)
    return fastest(opened)


def warm_up(sides):
    """The answers of one turn that does not count: the first one waits until all have started."""
    answers = [side.measure() for side in sides]
    for side in sides:
        side.results.clear()
    return answers


def wait_for_quiet(until):
    """Until other programs leave the machine alone for a second, or time.monotonic() is `until`."""
    while time.monotonic() < until:
        others = Others()
        time.sleep(min(1.0, max(until - time.monotonic(), 0.01)))
        if others.cores() <= QUIET:
            return


def take_turns(sides, rounds, until=0.0):
    """until: as long as time.monotonic() is less, measurements that other programs disturbed are repeated."""
    for _ in range(rounds):
        for side in sides:
            wait_for_quiet(until)
            while side.measure()["others"] > QUIET and time.monotonic() < until:
                side.results.pop()
                wait_for_quiet(until)
