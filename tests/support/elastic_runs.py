"""Runs with replicas.elastic whose bits must be those of an undisturbed one."""

import json
import pathlib
import tempfile
import unittest

import sluice_cli as cli


class ElasticCase(unittest.TestCase):
    STEPS = 24

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.config = cls.configuration("elastic")
        cls.reference = cls.folder / "reference"
        cli.must_run("train", cls.config, "--run-dir", cls.reference)
        cls.digest = cls.digest_of(cls.reference)

    @classmethod
    def configuration(cls, name, train=None, **tables):
        tables = {"model": {"name": "resnet8", "image_size": 16}, "data": {"name": "shapes", "samples": 76},
                  "device": {"list": "cpu", "threads": 1}, "log": {"digest_every": 1, "tensorboard": False},
                  "train": {"steps": cls.STEPS, "global_batch": 24, "micro_batch": 4, "eval_batch": 16, "eval_every_steps": 10,
                            "optimizer": "adamw", "lr": 2e-3, "clip_norm": 1.0, "seed": 5, "reproducible": "layout"} | (train or {}),
                  "checkpoint": {"every_steps": 7, "keep": 100}, "replicas": {"elastic": True}} | tables
        return cli.write_config(cls.folder / f"{name}.toml", **tables)

    @staticmethod
    def digest_of(run):
        return json.loads(cli.must_run("digest", run, "--json").stdout)

    def check_bits(self, run, reference, steps):
        """Those of the undisturbed run, and one record of each step."""
        self.assertEqual(self.digest_of(run), self.digest_of(reference))
        compared = cli.run("compare", reference, run, "--json")
        self.assertEqual(compared.returncode, 0, compared.stdout)
        self.assertEqual(cli.column(run, "step"), list(range(1, steps + 1)))

    def check(self, run, done, lost):
        """Every process but the lost ones ends well, with the bits of the undisturbed run and one record a step."""
        for rank, process in enumerate(done):
            self.assertEqual(process.returncode, -9 if rank in lost else 0, f"rank {rank}: {process.stderr[-3000:]}")
        self.check_bits(run, self.reference, self.STEPS)
