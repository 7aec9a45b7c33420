#!/usr/bin/env python3
"""device.memory_limit from outside: what a run that does not fit says, and what one that fits reports.

    memory_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import pathlib
import re
import tempfile
import unittest

import sluice_cli as cli

KINDS = ("parameters", "gradients", "optimizer", "activations", "transformed_weights")


class MemoryTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.config = cli.write_config(
            self.folder / "run.toml",
            device={"list": "cpu", "threads": 1},
            model={"name": "resnet8", "image_size": 32},
            data={"name": "shapes", "samples": 128},
            train={"steps": 2, "global_batch": 64, "eval_batch": 32},
            pipeline={"stages": 2, "partition": [2, 3], "chunks": 2},
            log={"every": 1, "tensorboard": False})

    def train(self, name, limit, *more):
        return cli.run("train", self.config, "--run-dir", self.folder / name, "--set", f"device.memory_limit={limit}", *more)

    def summary(self, name):
        return cli.events(self.folder / name, "summary")[0]

    def assert_refused(self, done, *parts):
        """Exit code 4, nothing on standard output, and a last line with all parts."""
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertEqual(done.stdout, "")
        for part in parts:
            self.assertRegex(cli.error_of(done), part)

    def test_a_run_that_fits_reports_its_peaks_and_computes_the_same(self):
        self.assertEqual(self.train("free", 0).returncode, 0)
        free = self.summary("free")
        for device in ("cpu:0", "cpu:1"):
            by_kind = free["peak_memory_by_kind"][device]
            self.assertEqual(set(by_kind), set(KINDS))
            self.assertEqual(sum(by_kind.values()), free["peak_memory_bytes"][device])
            self.assertTrue(all(by_kind.values()), by_kind)
        limit = int(1.25 * max(free["peak_memory_bytes"][device] for device in ("cpu:0", "cpu:1")))
        self.assertEqual(self.train("limited", limit).returncode, 0)
        limited = self.summary("limited")
        self.assertEqual(limited["loss"], free["loss"])
        for device in ("cpu:0", "cpu:1"):
            self.assertLessEqual(limited["peak_memory_bytes"][device], limit)

    def test_a_step_that_does_not_fit_ends_with_4_and_says_what_would(self):
        done = self.train("small", "8MiB")
        self.assert_refused(
            done, r"replica 0 stage [01] at action [01][FB]\d+ \(\d+ of \d+, micro-batch \d+\)", r"out of memory on cpu:[01]",
            r"no room for [\d.]+ [KM]iB in its device.memory_limit of 8.0 MiB", r"which holds activations [\d.]+ MiB, ",
            r"pipeline.chunks = \d+ would need about [\d.]+ MiB a device")
        self.assertIn(cli.events(self.folder / "small", "fault")[0]["what"], cli.error_of(done))
        chunks = re.search(r"pipeline.chunks = (\d+)", cli.error_of(done))[1]
        self.assertEqual(self.train("more_chunks", "8MiB", "--set", f"pipeline.chunks={chunks}").returncode, 0)

    def test_a_model_that_does_not_fit_is_refused_before_training(self):
        self.assert_refused(
            self.train("large", "100KiB"), r"out of memory on cpu:[01]: parameters [\d.]+ KiB, gradients [\d.]+ KiB, ",
            r"before any micro-batch, over its device.memory_limit of 100.0 KiB", r"stages")
        self.assertEqual(cli.events(self.folder / "large", "step"), [])
        self.assertEqual(self.train("dry", "100KiB", "--dry-run").returncode, 4)

    def test_an_evaluation_fits_where_training_does_whatever_its_batch(self):
        done = self.train("eval", "9MiB", "--set", "train.eval_batch=1024", "--set", "pipeline.chunks=16",
                          "--set", "data.samples=5120")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_size_without_a_sense_is_2(self):
        self.assertEqual(self.train("wrong", "8 parsecs").returncode, 2)


if __name__ == "__main__":
    unittest.main()
