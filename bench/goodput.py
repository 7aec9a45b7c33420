"""Goodput while processes die and start again, with replicas.elastic.

    bench/goodput.py [--model resnet8] [--processes 3] [--seconds 600] [--every 10] [--seed 1] [--peer] [--json FILE]

Trains a ResNet on images of 32 x 32 with AdamW in float32 on one machine, one thread a process. Every --every seconds a
random process, rank 0 included, gets SIGKILL, is started again with the same command, and joins the run.

Goodput: distinct steps that are done, times the median time of a step, over the wall time from the first step on. A new
process shares the cores with the others while it loads its libraries, which counts as lost. --model sleepers: layers
sleep for 64 ms a step instead, as if each process had an accelerator of its own (tests/support/slow_layers.cpp).
--peer: the same for DDP under torchrun, which starts all processes again when one dies (bench/peer_elastic.py).
"""

import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import sides

sys.path.insert(0, str(sides.ROOT / "tests" / "support"))
import sluice_cli as cli  # noqa: E402

BATCH = 48
SETTINGS = {"data": {"name": "shapes", "samples": 2000},
            "train": {"global_batch": BATCH, "optimizer": "adamw", "lr": 1e-4, "steps": 1000000, "epochs": 1000000, "eval_every_steps": 1000000},
            "replicas": {"elastic": True}, "device": {"list": "cpu", "threads": 1}, "log": {"tensorboard": False},
            "checkpoint": {"every_steps": 20}}


def last_quantile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] if values else None


SLEEPERS = sides.ROOT / "build" / "release" / "tests" / "support" / "sluice_slow_layers"
SLEEP_MS = {"SLEEP_FORWARD_MS": "2,2,2,2", "SLEEP_BACKWARD_MS": "2,2,2,2"}  # of a layer, for each of four micro-batches


class Run:
    def __init__(self, args, folder):
        self.size, self.port = args.processes, cli.free_port()
        self.run = folder / "run"
        sleeps = args.model == "sleepers"
        words = cli.options(model={"name": args.model}, **SETTINGS, pipeline={"chunks": 4 if sleeps else 1})
        (folder / "empty.toml").write_text("", encoding="utf-8")
        self.command = [SLEEPERS if sleeps else sides.SLUICE, "train", folder / "empty.toml", "--run-dir", self.run, "--quiet", *words]
        self.living = [self.start(rank) for rank in range(self.size)]

    def start(self, rank):
        environment = cli.rank_environment(rank, self.size, self.port) | {"GOMP_SPINCOUNT": sides.OUR_SPIN} | SLEEP_MS
        return subprocess.Popen([str(word) for word in self.command], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def steps(self):
        """(number, seconds, time at which it was done)"""
        steps, unix_s, time_s = [], 0, 0
        for line in cli.events(self.run):
            if line["event"] == "plan":
                unix_s, time_s = line["unix_s"], line["time_s"]
            if line["event"] == "step":
                steps.append((line["step"], line["step_ms"] / 1e3, unix_s + line["time_s"] - time_s))
        return steps

    def kill_one(self, rng):
        for process in list(self.living):  # one that found no run, because it was just going through a change
            if process.poll() is not None:
                self.living.remove(process)
        victim = self.living.pop(rng.randrange(len(self.living)))
        victim.kill()
        victim.wait()
        self.living.append(self.start(rng.randrange(self.size)))

    def end(self):
        for process in self.living:
            process.send_signal(signal.SIGTERM)
        for process in self.living:
            process.wait()
        next_steps, waits = cli.column(self.run, "next_step_ms", "lost"), cli.column(self.run, "wait_ms", "joined")
        return {"lost": len(next_steps), "joined": len(waits), "next_step_ms": statistics.median(next_steps),
                "next_step_ms_p99": last_quantile(next_steps, 0.99), "wait_ms": statistics.median(waits), "wait_ms_p99": last_quantile(waits, 0.99)}


class Peer:
    def __init__(self, args, folder):
        self.folder, self.killed = folder, 0
        words = ["--standalone", f"--nproc-per-node={args.processes}", "--max-restarts=1000000", "--monitor-interval=0.1"]
        worker = [sides.ROOT / "bench" / "peer_elastic.py", folder, args.model, BATCH]
        self.agent = subprocess.Popen([sys.executable, "-m", "torch.distributed.run", *words, *map(str, worker)],
                                      env=cli.environment_without_launchers() | {"OMP_NUM_THREADS": "1"},
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def steps(self):
        file = self.folder / "steps.jsonl"
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.endswith("]")] if file.exists() else []

    def workers(self):
        return pathlib.Path(f"/proc/{self.agent.pid}/task/{self.agent.pid}/children").read_text(encoding="ascii").split()

    def kill_one(self, rng):
        cli.wait_for(self.workers, "workers")
        os.kill(int(rng.choice(self.workers())), signal.SIGKILL)
        self.killed += 1

    def end(self):
        self.agent.terminate()
        self.agent.wait()
        return {"killed": self.killed}


def measure(run, args):
    rng = random.Random(args.seed)
    cli.wait_for(lambda: len(run.steps()) > 5, "the first steps")
    begin = time.monotonic()
    for number in range(1, int(args.seconds / args.every) + 1):
        time.sleep(max(0, begin + number * args.every - time.monotonic()))
        run.kill_one(rng)
    time.sleep(max(0, begin + args.seconds - time.monotonic()))
    steps, end = run.steps(), time.time()
    result = run.end()
    step_s, wall_s = statistics.median(seconds for _, seconds, _ in steps), end - steps[0][2]
    distinct = len({number for number, _, _ in steps})
    return {"goodput": (distinct - 1) * step_s / wall_s, "steps": distinct, "step_ms": 1e3 * step_s, "wall_s": wall_s} | result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet8", choices=["resnet8", "resnet18", "sleepers"])
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--every", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peer", action="store_true", help="measure DDP under torchrun instead")
    parser.add_argument("--json", type=pathlib.Path, help="also write the results here")
    args = parser.parse_args()
    sides.prepare(sides.SLUICE)
    with tempfile.TemporaryDirectory() as folder:
        result = measure((Peer if args.peer else Run)(args, pathlib.Path(folder)), args)
    print(json.dumps({key: round(value, 3) for key, value in result.items()}))
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
