#!/usr/bin/env python3
"""A parameter server and workers, as processes, that are killed (kill -9) again and again, at moments that a seed
decides: the run goes on each time, and what its records and its last checkpoint say adds up. Exits 77 without safetensors.

    server_storm_test.py [KILLS [SEED]]        SLUICE_BINARY names the binary
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import unittest

import sluice_cli as cli
from server_runs import SLOW, ServerRuns, configuration

KILLS, SEED = (int(word) for word in (sys.argv[1:] + ["100", "1"][len(sys.argv) - 1:])[:2])
WORKERS = 3


def records(run_dir):
    """The lines of metrics.jsonl that are whole: a server that is killed may leave half of one."""
    file = run_dir / "metrics.jsonl"
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else []:
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            pass


def steps_of_this_server(run_dir):
    """How many updates it has recorded since it was started."""
    count = 0
    for record in records(run_dir):
        count = 0 if record["event"] in ("start", "resume") else count + (record["event"] == "step")
    return count


class ServerStormTest(unittest.TestCase):
    assert_records_add_up = ServerRuns.assert_records_add_up

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.run_dir = self.folder / "run"
        self.port = cli.free_port()
        self.all = {}
        self.servers = 0
        self.left_behind = None  # what the last server had recorded when it was killed, until the next one records
        self.addCleanup(lambda: [process.kill() for process in self.all.values() if process.poll() is None])

    def start(self, config, rank, *arguments):
        with open(self.folder / f"log{rank}", "ab") as log:
            self.all[rank] = subprocess.Popen(
                [cli.BINARY, "train", config, "--run-dir", self.run_dir, *arguments], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, env=cli.rank_environment(rank, WORKERS + 1, self.port))
        self.servers += rank == 0

    def log_of(self, rank):
        return (self.folder / f"log{rank}").read_text(errors="replace")[-2000:]

    def wait_for_updates(self, count):
        """More, of the server that runs now. Nobody may have given up by then."""
        deadline = time.monotonic() + cli.PATIENCE_S
        count += 0 if self.left_behind else steps_of_this_server(self.run_dir)
        while self.recorded() == self.left_behind or steps_of_this_server(self.run_dir) < count:
            for rank, process in self.all.items():
                self.assertIsNone(process.poll(), f"rank {rank}: {self.log_of(rank)}")
            self.assertLess(time.monotonic(), deadline, self.log_of(0))
            time.sleep(0.05)
        self.left_behind = None

    def recorded(self):
        file = self.run_dir / "metrics.jsonl"
        return file.read_bytes() if file.exists() else b""

    def kill(self, config, rank):
        self.all[rank].kill()
        self.all[rank].wait()
        if rank == 0:
            self.left_behind = self.recorded()
        self.start(config, rank, *(["--resume", "auto"] if rank == 0 else []))

    def storm(self, policy):
        draw = random.Random(f"{SEED} {policy}")
        config = configuration(self.folder, {"policy": policy, **SLOW}, replicas={"hang_timeout_s": 60},
                               train={"steps": 1000000}, checkpoint={"every_steps": 7})
        for rank in range(WORKERS + 1):
            self.start(config, rank)
        killed = 0
        while killed < KILLS:
            self.wait_for_updates(draw.randint(1, 8))
            time.sleep(draw.random() * 0.3)
            worker = draw.randint(1, WORKERS)
            victims = draw.choices([[worker], [0], [0, worker], [worker, worker % WORKERS + 1]], [6, 2, 1, 1])[0]
            for victim in victims:
                self.kill(config, victim)
            killed += len(victims)
        self.wait_for_updates(20)
        self.all[0].terminate()
        begin = time.monotonic()
        for rank, process in self.all.items():
            self.assertEqual(process.wait(timeout=cli.PATIENCE_S), 130, f"rank {rank}: {self.log_of(rank)}")
        return killed, time.monotonic() - begin

    def check(self, policy):
        begin = time.monotonic()
        killed, end_s = self.storm(policy)
        steps = cli.column(self.run_dir, "step")
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        self.assertGreater(steps[-1], KILLS / 2)
        self.assertTrue(all(abs(loss) < 100 for loss in cli.column(self.run_dir, "loss")))
        self.assert_records_add_up(self.run_dir)
        self.assertGreater(self.servers, 1)
        lives = {}
        for push in cli.events(self.run_dir, "push"):
            lives.setdefault(push["worker"], set()).add(push["life"])
        self.assertEqual(len(lives), WORKERS)
        print(f"{policy}: {killed} kills, {self.servers - 1} of them of the server, in {time.monotonic() - begin:.0f} s; "
              f"{steps[-1]} updates count, of lives {({worker: len(of) for worker, of in lives.items()})}; "
              f"ended within {end_s:.1f} s", file=sys.stderr)

    def test_asynchronous(self):
        self.check("asp")

    def test_bulk_synchronous(self):
        self.check("bsp")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
