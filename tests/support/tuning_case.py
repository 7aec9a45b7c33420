"""A test case of sluice tune: a folder, a small configuration, and one profile of it for all tests of a class."""

import json
import pathlib
import tempfile
import tomllib
import unittest

import sluice_cli as cli

BATCH = 48


class TuningCase(unittest.TestCase):
    TABLES = {}  # of the configuration; by the class
    measured = None  # the text of the profile

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.out = self.folder / "tuned.toml"
        self.config = self.configuration()

    def configuration(self, name="small", **changes):
        tables = {**self.TABLES, **{table: {**self.TABLES.get(table, {}), **values} for table, values in changes.items()}}
        return cli.write_config(self.folder / f"{name}.toml", **tables)

    def profile(self):
        out = self.folder / "p.json"
        if type(self).measured is None:
            cli.must_run("profile", self.config, "--out", out)
            type(self).measured = out.read_text(encoding="utf-8")
        out.write_text(type(self).measured, encoding="utf-8")
        return out

    def tuned(self, file=None):
        """The keys that a run with what tune has written takes."""
        return tomllib.loads(cli.must_run("config", "--all", file or self.out).stdout)

    def assert_refused(self, code, *parts, command=("tune",), config=None, words=()):
        """With these words in its one sentence, no result and no file."""
        done = cli.run(*command, config or self.config, *words)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "")
        for part in parts:
            self.assertIn(part, cli.error_of(done))
        self.assertFalse(self.out.exists())


class SmallTuningCase(TuningCase):
    """Two stages of a small network."""

    TABLES = {"device": {"list": "cpu", "threads": 1}, "model": {"name": "toy_cnn", "image_size": 16},
              "data": {"name": "shapes", "samples": 480}, "train": {"steps": 40, "global_batch": BATCH, "lr": 0.05,
                                                                    "lr_schedule": "onecycle", "warmup_steps": 9},
              "pipeline": {"stages": 2, "chunks": 2}, "replicas": {}, "profile": {"steps": 2}}

    def tune(self, *words, config=None):
        done = cli.must_run("tune", config or self.config, "--out", self.out, "--json", *words)
        return json.loads(done.stdout)
