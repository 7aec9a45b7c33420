#!/usr/bin/env python3
"""What becomes slower in mid-run, and stays so, is named with its place and its first step; a burst is not.

The model's layers and the data set's samples sleep (tests/support/slow_layers.cpp), and a file slows them down.
SLUICE_SLOW_LAYERS names that binary.

    slow_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import concurrent.futures
import os
import pathlib
import random
import tempfile
import time
import unittest

import hosts
import long_tests
import sluice_cli as cli

PLANTED, QUIET_STEPS, AT_ONCE = 100, 10000, 10  # the layers sleep, so that many runs fit on two cores


class Run:
    """`processes` processes, of which `slow_rank` can be slowed down; steps take 32 ms and more."""

    def __init__(self, folder, slow_rank=1, processes=2, sleep=1, network=None, **tables):
        self.run_dir = folder / "run"
        self.slower, self.slow_data, self.network = folder / "slower", folder / "slow_data", network
        config = cli.write_config(folder / "run.toml", **{
            "model": {"name": "sleepers", "image_size": 8}, "data": {"name": "drowsy", "samples": 480, "prefetch": 1},
            "device": {"list": "cpu", "threads": 1}, "pipeline": {"chunks": 4}, "log": {"tensorboard": False},
            "train": {"steps": 100000, "global_batch": 16, "lr": 0.01, "eval_every_steps": 50},
            "checkpoint": {"every_steps": 70}} | tables)
        times = {variable: ",".join([str(sleep)] * 4) for variable in ("SLEEP_FORWARD_MS", "SLEEP_BACKWARD_MS")}
        files = {"SLOWER_FILE": str(self.slower), "SLOW_DATA_FILE": str(self.slow_data)}
        words = ["train", config, "--run-dir", self.run_dir]
        if network:
            self.processes = [network.start(rank, *words, environment=times) for rank in range(processes)]
        else:
            self.processes = cli.start_ranks(processes, *words, environments_of={
                rank: times | (files if rank == slow_rank else {}) for rank in range(processes)})

    def end(self):
        for process in self.processes:
            process.kill()
        cli.finish_all(self.processes)

    def last_step(self):
        return (cli.column(self.run_dir, "step") or [0])[-1]

    def wait_for_steps(self, count):
        end = self.last_step() + count
        cli.wait_for(lambda: self.last_step() >= end, f"step {end}")

    def slow_down(self, file, number):
        """The first step that may be slow."""
        step = self.last_step()
        other = file.with_suffix(".new")
        other.write_text(str(number), encoding="utf-8")
        other.rename(file)
        return step + 1

    def events(self):
        return cli.events(self.run_dir, "slow")


class SlowTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.addCleanup(setattr, cli, "BINARY", cli.BINARY)
        cli.BINARY = os.environ["SLUICE_SLOW_LAYERS"]

    def start(self, **how):
        run = Run(self.folder, **how)
        self.addCleanup(run.end)
        run.wait_for_steps(45)
        return run

    def news(self, run, count):
        cli.wait_for(lambda: len(run.events()) >= count, f"{count} events")
        self.assertEqual(len(run.events()), count, run.events())
        return run.events()[-1]

    def test_a_slow_device_and_its_recovery(self):
        run = self.start()
        since = run.slow_down(run.slower, 2.5)
        event = self.news(run, 1)
        self.assertEqual((event["what"], event["is_over"]), ("device", False), event)
        self.assertEqual([event[field] for field in ("rank", "replica", "device")], [1, 0, 0], event)
        self.assertAlmostEqual(event["factor"], 2.5, delta=0.6)
        self.assertAlmostEqual(event["since_step"], since, delta=4)
        said = (run.run_dir / "log.txt").read_text()
        self.assertIn(f"takes {event['factor']:.1f} times as long to compute since step {event['since_step']}", said)
        self.assertIn("; all else in this process is as before", said)
        since = run.last_step() + 1
        run.slower.unlink()
        event = self.news(run, 2)
        self.assertEqual((event["what"], event["is_over"]), ("device", True), event)
        self.assertAlmostEqual(event["since_step"], since, delta=10)

    def test_both_stages_of_rank_0(self):
        run = self.start(slow_rank=0, pipeline={"stages": 2, "partition": [2, 2], "chunks": 4})
        run.slow_down(run.slower, 3)
        self.news(run, 2)
        self.assertEqual(sorted((event["rank"], event["device"]) for event in cli.events(run.run_dir, "slow")), [(0, 0), (0, 1)])
        self.assertNotIn("all else in this process", (run.run_dir / "log.txt").read_text())

    def test_slow_data(self):
        run = self.start()
        since = run.slow_down(run.slow_data, 30)  # of each of 8 samples, in each of data.workers threads
        event = self.news(run, 1)
        self.assertEqual((event["what"], event["is_over"]), ("data", False), event)
        self.assertEqual(event["rank"], 1)
        self.assertAlmostEqual(event["since_step"], since, delta=10)  # batches that were prepared before come first
        self.assertGreater(event["now_ms"], event["before_ms"] + 5)

    @unittest.skipIf(hosts.missing(), hosts.missing())
    def test_a_slow_link(self):
        network = self.enterContext(hosts.Hosts("1gbit", count=3))
        run = self.start(processes=3, network=network)
        since = run.last_step() + 1
        network.limit(2, "4mbit")
        event = self.news(run, 1)
        self.assertEqual((event["what"], event["is_over"]), ("sum", False), event)
        self.assertAlmostEqual(event["since_step"], since, delta=3)
        slow = {tuple(link["ranks"]) for link in event["links"] if link["bytes_per_s"] < 2e6}
        self.assertEqual(slow, {(0, 2), (1, 2)}, event)
        said = (run.run_dir / "log.txt").read_text()
        self.assertRegex(said, r"ranks [01] - 2: \d+ Mbit/s, ranks [01] - 2: \d+ Mbit/s, all others: \d+ Mbit/s and more")

    def test_a_burst_is_no_change(self):
        run = self.start()
        for _ in range(2):
            run.slow_down(run.slower, 2)
            time.sleep(1.5)
            run.slower.unlink()
            run.wait_for_steps(100)
        self.assertEqual(cli.events(run.run_dir, "slow"), [])

    def test_one_process(self):
        run = self.start(slow_rank=0, processes=1)
        run.slow_down(run.slower, 2)
        event = self.news(run, 1)
        self.assertEqual((event["what"], event["name"], "rank" in event), ("device", "cpu:0", False), event)

    def plant(self, number):
        """Slows a run of 0.64 s steps down at random; (what was planted, what was said)."""
        rng = random.Random(number)
        folder = self.folder / str(number)
        folder.mkdir()
        rank, what = rng.randrange(2), rng.choice(["device", "device", "data"])
        run = Run(folder, slow_rank=rank, sleep=20)
        try:
            run.wait_for_steps(45 + rng.randrange(20))
            if what == "device":
                since = run.slow_down(run.slower, rng.uniform(1.6, 4))
            else:
                since = run.slow_down(run.slow_data, rng.uniform(120, 300))
            run.wait_for_steps(9)
            return (what, rank, since), run.events()
        finally:
            run.end()

    @long_tests.only("a hundred runs: a quarter of an hour")
    def test_a_hundred_planted_changes(self):
        wrong = []
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for (what, rank, since), events in pool.map(self.plant, range(PLANTED)):
                first = events[0] if events else {}
                # Batches that were prepared before come first.
                is_right = (len(events) == 1 and (first["what"], first["rank"]) == (what, rank)
                            and 0 <= first["since_step"] - since <= (8 if what == "data" else 2) and first["step"] - first["since_step"] <= 5)
                if not is_right:
                    wrong.append((what, rank, since, events))
        self.assertLessEqual(len(wrong), PLANTED // 100, wrong)

    @long_tests.only("ten thousand steps")
    def test_quiet_steps_and_bursts_are_no_change(self):
        def watch(number):
            folder = self.folder / str(number)
            folder.mkdir()
            run = Run(folder)
            try:
                for _ in range(QUIET_STEPS // AT_ONCE // 200):
                    run.wait_for_steps(200)
                    if number % 2 == 0:
                        run.slow_down(run.slower, 3)
                        time.sleep(1.5)
                        run.slower.unlink()
                return run.events()
            finally:
                run.end()

        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            self.assertEqual(list(pool.map(watch, range(AT_ONCE))), [[]] * AT_ONCE)


if __name__ == "__main__":
    unittest.main()
