"""Runs of exported models, for tests of model.name = "pt2"."""

import pathlib
import sys
import tempfile
import unittest

import sluice_cli as cli
import torch
from safetensors.torch import load_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import export_model  # noqa: E402

SEED = 5


class Exported(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(SEED)
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.runs = 0

    def export(self, module, inputs, name="m.pt2"):
        file = self.folder / name
        export_model.export_to(file, module, inputs)
        return file

    def config(self, file, **tables):
        self.runs += 1
        model = {"name": "pt2", "file": str(file)} | tables.pop("model", {})
        train = {"steps": 8, "global_batch": 8, "lr": 0.02, "seed": SEED, "precision": "fp64", "optimizer": "momentum"}
        return cli.write_config(self.folder / f"{self.runs}.toml", device={"list": "cpu"}, model=model,
                                train=train | tables.pop("train", {}), **tables)

    def train(self, file, *words, **tables):
        """The run directory."""
        config = self.config(file, **tables)
        run = config.with_suffix("")
        cli.must_run("train", config, "--run-dir", run, *words)
        return run

    def losses(self, run):
        return torch.tensor(cli.column(run, "loss"), dtype=torch.float64)

    def assert_same_losses(self, run, other, bound=1e-10):
        torch.testing.assert_close(self.losses(run), self.losses(other), rtol=bound, atol=0)

    def weights_of(self, run):
        return load_file(max(cli.checkpoints(run).items())[1] / "model.safetensors")

    def assert_same_weights(self, run, other, bound=1e-10):
        mine, theirs = self.weights_of(run), self.weights_of(other)
        self.assertEqual(mine.keys(), theirs.keys())
        for name, tensor in theirs.items():
            torch.testing.assert_close(mine[name], tensor, rtol=bound, atol=bound, msg=lambda text, of=name: f"{of}: {text}")
