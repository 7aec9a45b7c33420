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
import socket
import statistics
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parent
OURS = ROOT / "build" / "release" / "bench" / "bench_train_step"
PEER = BENCH / "peer_torch.py"
PIPELINING_PEER = BENCH / "peer_pipelining.py"


def fail(what):
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {what}")


def require_ours(program=OURS):
    if not program.exists():
        fail(f"{program.relative_to(ROOT)} is missing; run scripts/bootstrap.sh")


def environments(ranks):
    base = os.environ | {"GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", "3000")}
    if ranks == 1:
        return [base]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(ranks)}
    return [base | meeting | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]


class Side:
    """Processes that time some steps for every line they are sent; the slowest of them counts.

    A context manager: its processes are gone when it is left."""

    def __init__(self, command, ranks=1):
        self.command = [str(word) for word in command]
        self.processes = [subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                           env=env) for env in environments(ranks)]
        self.results = []

    def measure(self, what="run"):
        with contextlib.suppress(BrokenPipeError):  # its answer, which is missing, will tell
            for process in self.processes:
                process.stdin.write(f"{what}\n")
                process.stdin.flush()
        of_ranks = [self._answer(process) for process in self.processes]
        slowest = min(of_ranks, key=lambda result: result["samples_per_s"])
        self.results.append(slowest | {"cpu_ms": sum(result["cpu_ms"] for result in of_ranks)})
        return self.results[-1]

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
def open_all(commands, ranks=None):
    """commands: {name: command}; ranks: {name: processes}, 1 where it says nothing."""
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(Side(command, (ranks or {}).get(name, 1)))
               for name, command in commands.items()}


def take_turns(sides, rounds):
    for _ in range(rounds):
        for side in sides:
            side.measure()
