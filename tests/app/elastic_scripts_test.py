#!/usr/bin/env python3
"""scripts/run_elastic_pipe.sh and the sweeps over it with the real program: two nodes, both on this machine.

    elastic_scripts_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import concurrent.futures
import os
import pathlib
import subprocess
import tempfile
import time
import unittest

import long_tests
import sluice_cli as cli
from script_copy import REPOSITORY, ScriptCopy

SAMPLES = 96
SMALL = ["--set", "data.path=", "--set", f"data.samples={SAMPLES}", "--set", "data.workers=0", "--set", "model.size=nano", "--set", "device.list=cpu",
         "--set", "pipeline.chunks=2", "--set", "replicas.connect_timeout_s=60"]
RATES = ["0.03", "0.01", "0.3", "0.1"]


class ElasticScriptsTest(unittest.TestCase):
    def setUp(self):
        self.copy = self.enterContext(ScriptCopy())
        self.copy.stand_in("scripts/bootstrap.sh", "exit 0\n")
        (self.copy.root / "build/release").mkdir(parents=True)
        (self.copy.root / "build/release/sluice").symlink_to(os.path.abspath(cli.BINARY))
        (self.copy.root / "configs").symlink_to(REPOSITORY / "configs")
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def start(self, *command):
        """Its session is stopped before the test ends."""
        process = self.copy.start(*command)
        self.addCleanup(process.stderr.close)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        if process.poll() is None:
            self.copy.run("stop.sh", "--timeout", "5")
            process.kill()
            process.wait()

    def finish(self, processes, code=0):
        with concurrent.futures.ThreadPoolExecutor(len(processes)) as pool:
            errors = list(pool.map(lambda one: one.communicate(timeout=cli.PATIENCE_S)[1], processes))
        self.assertEqual([one.returncode for one in processes], [code] * len(processes), errors)
        return errors

    def start_sweeps(self, *options):
        port = cli.free_port() - len(RATES)
        return [self.start(f"run_cifar100_batch_experiment_node{node}.sh", 4, "127.0.0.1", port, 0, "lo", 8, self.folder, 2, 1,
                           "--run-dir", self.folder / "sweep", "--set", "data.name=shapes", *SMALL, *options)
                for node in (0, 1)]

    def test_two_nodes_freeze_layers_and_shrink(self):
        """4 devices a node, 2 a pipeline: 4 replicas to begin with."""
        run_dir, port = self.folder / "run", cli.free_port()
        self.finish([self.start("run_elastic_pipe.sh", 4, 2, node, "127.0.0.1", port, 0, "lo", 0.01, 6, "shapes", self.folder, 2, 1,
                                "--run-dir", run_dir, "--set", "train.epochs=5", *SMALL) for node in (0, 1)])
        steps = cli.events(run_dir, "step")
        batches = SAMPLES // (6 * 4)  # BATCH x 2 pipelines x 2 nodes
        self.assertEqual(len(steps), 5 * batches)
        self.assertEqual((steps[0]["frozen_layers"], steps[0]["stages"], steps[0]["replicas"]), (0, 2, 4))
        # ceil(4 (1 - (2/3)^epoch)) blocks: the embeddings and two layers each.
        self.assertEqual([step["frozen_layers"] for step in steps[::batches]], [0, 5, 7, 7, 9])
        self.assertEqual(steps[-1]["stages"], 1, "one layer is left to train")
        self.assertIn(steps[-1]["replicas"], (4, 8))

    @long_tests.only("one more run")
    def test_without_freezing_nothing_is_frozen(self):
        run_dir = self.folder / "run"
        self.finish([self.start("run_elastic_pipe.sh", 2, 1, 0, "127.0.0.1", cli.free_port(), 0, "", 0.01, 16, "shapes", self.folder, 2, 0,
                                "--run-dir", run_dir, "--set", "train.epochs=2", *SMALL)])
        self.assertEqual({step["frozen_layers"] for step in cli.events(run_dir, "step")}, {0})

    def test_a_dry_run_of_the_notes(self):
        """8 devices in one pipeline, by virtual devices of the CPU."""
        done = self.copy.run("run_elastic_pipe.sh", 8, 2, 0, "192.168.11.2", 22222, 1, "ib0", 0.03, 320, "shapes", self.folder, 8, 1,
                             "no_auto_dp", "--dry-run", *SMALL, "--set", "data.samples=1280")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("8 stages x 1 replica", done.stdout)
        self.assertIn("global batch 640", done.stdout)
        self.assertIn("2 of 4 blocks frozen", done.stdout)

    def sweep_over_two_nodes(self):
        errors = self.finish(self.start_sweeps("--set", "train.steps=3"))
        for rate in RATES:
            steps = cli.events(self.folder / "sweep" / f"lr-{rate}", "step")
            self.assertEqual([step["replicas"] for step in steps], [4] * 3)
            for node in (0, 1):
                self.assertTrue((self.folder / "sweep" / f"lr-{rate}-node{node}.log").read_text())
        report = errors[0].splitlines()[-1].partition("report ")[2]
        table = subprocess.run(f"'{cli.BINARY}' report {report}", shell=True, capture_output=True, text=True, check=True).stdout
        self.assertTrue(all(f"lr-{rate}" in table for rate in RATES), table)

    def test_a_sweep_over_two_nodes(self):
        self.sweep_over_two_nodes()

    @long_tests.only("app_resume has a finished run, scripts_sweep a sweep that goes on")
    def test_a_finished_sweep_stays_as_it_is(self):
        self.sweep_over_two_nodes()
        self.finish(self.start_sweeps("--set", "train.steps=3", "--resume", "auto"))
        self.assertEqual([len(cli.events(self.folder / "sweep" / f"lr-{rate}", "step")) for rate in RATES], [3] * 4)

    @long_tests.only("scripts_stop and scripts_sweep have it in CI, with a program that pretends")
    def test_stop_ends_a_sweep_with_a_checkpoint(self):
        sweeps = self.start_sweeps("--set", "train.steps=100000")
        metrics = self.folder / "sweep/lr-0.03/metrics.jsonl"
        end = time.monotonic() + cli.PATIENCE_S
        while not (metrics.exists() and '"step"' in metrics.read_text()):
            self.assertLess(time.monotonic(), end, "no step came")
            self.assertEqual([one.poll() for one in sweeps], [None, None])
            time.sleep(0.1)
        done = self.copy.run("stop.sh")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.finish(sweeps, 130)
        self.assertEqual(len(cli.checkpoints(metrics.parent)), 1)
        self.assertEqual([run.name for run in self.folder.glob("sweep/lr-*") if run.is_dir()], ["lr-0.03"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
