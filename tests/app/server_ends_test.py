#!/usr/bin/env python3
"""How processes of a run with several servers and workers end: launches whose run is done, and processes that are stopped
or killed at moments that a seed decides. Their exit codes are those of docs/reference/exit_codes.md. Exits 77 without safetensors.

    server_ends_test.py [LAUNCHES STOPS [SEED]]        SLUICE_BINARY names the binary
"""

import collections
import random
import signal
import subprocess
import sys
import time
import unittest

import sluice_cli as cli
from server_runs import SHORT, SLOW, ServerRuns, configuration

LAUNCHES, STOPS, SEED = (int(word) for word in (sys.argv[1:] + ["24", "12", "1"][len(sys.argv) - 1:])[:3])
SERVERS, WORKERS = 2, 2
RANKS = range(SERVERS + WORKERS)
STEPS = 120
LONGEST_S = 90
MLP = {"name": "mlp", "image_size": 8}
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class ServerEndsTest(ServerRuns):
    def setUp(self):
        super().setUp()
        self.run_dir = self.folder / "run"
        self.processes = {}  # of the last launch, by rank

    def configure(self, ps, **tables):
        self.address = ",".join(f"127.0.0.1:{cli.free_port()}" for _ in range(SERVERS))
        return configuration(
            self.folder, {"servers": SERVERS, "address": self.address, **ps}, model=MLP,
            replicas={**SHORT, "connect_timeout_s": 20}, pipeline={"stages": 1, "chunks": 1}, **tables)

    def log_of(self, rank):
        return (self.folder / f"log{rank}").read_text(errors="replace")

    def launch(self, config, *arguments, ranks=RANKS, pause=lambda: 0):
        self.port = cli.free_port()
        for rank in ranks:
            time.sleep(pause())
            self.processes[rank] = self.start(config, rank, len(RANKS), *arguments, run_dir=self.run_dir.name,
                                              log=self.folder / f"log{rank}")

    def codes(self):
        deadline = time.monotonic() + LONGEST_S
        codes = []
        for rank in RANKS:
            try:
                codes.append(self.processes[rank].wait(max(deadline - time.monotonic(), 0.1)))
            except subprocess.TimeoutExpired:
                self.fail(f"rank {rank} has not ended: {self.logs()}")
        return codes

    def logs(self):
        return "\n".join(f"--- rank {rank}:\n{self.log_of(rank)[-1500:]}" for rank in RANKS)

    def test_a_launch_whose_run_is_done_ends_with_0_at_all(self):
        draw = random.Random(f"{SEED} launches")
        config = self.configure({"policy": "bsp"}, train={"steps": 4})
        self.launch(config)
        self.assertEqual(self.codes(), [0] * len(RANKS), self.logs())
        begin, longest = time.monotonic(), 0
        for launch in range(LAUNCHES):
            started = time.monotonic()
            self.launch(config, "--resume", "auto", ranks=draw.sample(RANKS, len(RANKS)), pause=lambda: 0.4 * draw.random())
            with self.subTest(launch=launch):
                self.assertEqual(self.codes(), [0] * len(RANKS), self.logs())
            self.kill_all()
            longest = max(longest, time.monotonic() - started)
        print(f"{LAUNCHES} launches in {time.monotonic() - begin:.0f} s, the longest in {longest:.1f} s", file=sys.stderr)

    # --- Stops.

    def stop_some(self, draw):
        """Returns what was done: {rank: signal}, and whether the run had steps by then."""
        kind = draw.choice(["server 0", "a server", "a worker", "all", "kill", "kill and stop", "kill and stop"])
        targets = {"server 0": [0], "a server": [draw.randrange(1, SERVERS)], "a worker": [draw.randrange(SERVERS, len(RANKS))],
                   "all": list(RANKS)}.get(kind, [])
        sent = {rank: draw.choice(SIGNALS) for rank in targets}
        if kind.startswith("kill"):
            killed = draw.choice(RANKS)
            sent[killed] = signal.SIGKILL
            if kind == "kill and stop":
                sent[draw.choice([rank for rank in RANKS if rank != killed])] = draw.choice(SIGNALS)
        has_begun = bool(cli.events(self.run_dir, "step"))
        for rank, number in sorted(sent.items(), key=lambda item: item[1] != signal.SIGKILL):
            self.processes[rank].send_signal(number)
        return sent, has_begun

    def may_end_well(self, rank):
        """Whether 0 is right: the run is done. After the last update only server 0 has something left to do."""
        is_done = any(summary["outcome"] == "done" for summary in cli.events(self.run_dir, "summary"))
        return is_done or (rank > 0 and STEPS in cli.column(self.run_dir, "step"))

    def allowed(self, rank, sent, has_begun, has_log):
        """Exit codes of a rank."""
        killed = {other for other, number in sent.items() if number == signal.SIGKILL}
        codes = {0} if self.may_end_well(rank) else set()
        if rank in killed:
            return codes | {-signal.SIGKILL}
        stopped_servers = {other for other in sent if other < SERVERS} - killed
        if rank in sent:
            codes |= {130} if has_begun else {130, -sent[rank]}  # before its handlers are there
        if stopped_servers:
            codes |= {130}  # the run was stopped, and saved
        ends_run = killed & set(range(SERVERS)) or set(range(SERVERS, len(RANKS))) <= set(sent)
        if ends_run or (sent and not has_begun):
            codes |= {5}
        could_save = not killed & set(range(SERVERS)) or (has_log and rank > 0)
        if rank in sent and rank < SERVERS and has_begun and not could_save:
            codes -= {130}
        return codes

    def check_saved(self, code):
        """130 of server 0 says that the last update is in a checkpoint, or that there was none."""
        steps = cli.column(self.run_dir, "step")
        if code == 130 and steps:
            self.assertIn(steps[-1], cli.checkpoints(self.run_dir), self.logs())

    def start_and_stop(self, draw):
        log = draw.choice(["off", "process"])
        config = self.configure({"policy": draw.choice(["asp", "bsp"]), "log": log, **SLOW},
                                train={"steps": STEPS, "eval_batch": 1}, data={"samples": 4000})
        self.launch(config)
        if draw.random() < 0.8:
            cli.wait_for(lambda: cli.events(self.run_dir, "step"), "a step")
        time.sleep(draw.random() * 7)
        sent, has_begun = self.stop_some(draw)
        codes = self.codes()
        what = f"{config.read_text()}, sent {sent}, has begun: {has_begun}, ended with {codes}: {self.logs()}"
        for rank, code in enumerate(codes):
            self.assertIn(code, self.allowed(rank, sent, has_begun, log != "off"), f"rank {rank}; {what}")
        self.check_saved(codes[0])
        return sent, codes

    def test_whoever_is_stopped_ends_as_documented(self):
        draw = random.Random(f"{SEED} stops")
        begin, seen, signals = time.monotonic(), collections.Counter(), collections.Counter()
        for stop in range(STOPS):
            self.run_dir = self.folder / f"run{stop}"
            with self.subTest(stop=stop):
                sent, codes = self.start_and_stop(draw)
                seen.update(codes)
                signals.update(number.name for number in sent.values())
            self.kill_all()
        print(f"{STOPS} stops in {time.monotonic() - begin:.0f} s, sent {dict(signals)}, exit codes {dict(seen)}", file=sys.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
