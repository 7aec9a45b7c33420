#!/usr/bin/env python3
"""A C++ user's own program: installs Sluice, builds examples/own_model against the package, and trains it.

    own_model_test.py BUILD_FOLDER      the folder that is installed from
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import torch
from safetensors.torch import load_file, save_file

import long_tests
import sluice_cli as cli

BUILD = None
EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "own_model"


# CMake and Ninja are the project's own, beside its Python; CMake's default generator needs make, which nothing installs.
TOOLS = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ.get('PATH', '')}", "CMAKE_GENERATOR": "Ninja"}


def must_run(*command):
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, check=False, timeout=600, env=TOOLS)
    if done.returncode != 0:
        raise AssertionError(f"{command[0]} ended with {done.returncode}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done


def twin(weights, x):
    """The example's layers by formulas."""
    hidden = torch.sin(x.flatten(1) @ weights["waves.frequencies"])
    hidden = torch.relu(hidden @ weights["hidden.weight"].T + weights["hidden.bias"])
    return hidden @ weights["head.weight"].T + weights["head.bias"]


class OwnModelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        kept = tempfile.TemporaryDirectory()
        cls.addClassCleanup(kept.cleanup)
        cls.prefix, cls.build = pathlib.Path(kept.name) / "prefix", pathlib.Path(kept.name) / "build"
        must_run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        must_run("cmake", "-S", EXAMPLE, "-B", cls.build, "-D", f"CMAKE_PREFIX_PATH={cls.prefix}",
                 "-D", f"Python3_EXECUTABLE={sys.executable}", "-D", "CMAKE_CXX_COMPILER_LAUNCHER=ccache",
                 "-D", "CMAKE_BUILD_TYPE=Release")
        must_run("cmake", "--build", cls.build)

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        # The other helpers start the binary that this names.
        self.addCleanup(setattr, cli, "BINARY", cli.BINARY)
        cli.BINARY = str(self.build / "own_model")
        self.config = EXAMPLE / "config.toml"

    def losses(self, name, *sets, processes=1):
        words = [word for each in ("train.precision=fp64", "device.list=cpu", "device.threads=1", "log.every=1", *sets)
                 for word in ("--set", each)]
        cli.must_run_ranks(processes, "train", self.config, "--run-dir", self.folder / name, *words)
        return np.array([line["loss"] for line in cli.events(self.folder / name, "step")])

    def test_the_package_names_no_place_of_this_checkout(self):
        for file in self.prefix.rglob("*.cmake"):
            text = file.read_text()
            for place in (str(BUILD), str(EXAMPLE.parents[1]), str(pathlib.Path(sys.executable).parents[1])):
                self.assertNotIn(place, text, file)
        self.assertTrue(os.access(self.prefix / "bin" / "sluice", os.X_OK))
        self.assertTrue((self.prefix / "share" / "sluice" / "configs" / "quickstart.toml").exists())

    def test_a_package_without_its_torch_says_what_to_give(self):
        other = self.folder / "torch"
        other.mkdir()
        (other / "version.py").write_text("__version__ = '1.0.0+cpu'\n")
        done = subprocess.run(["cmake", "-S", EXAMPLE, "-B", self.folder / "build", "-D", f"CMAKE_PREFIX_PATH={self.prefix}",
                               "-D", f"SLUICE_TORCH_ROOT={other}"], text=True, capture_output=True, check=False, env=TOOLS)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("Sluice was built with torch ", " ".join(done.stderr.split()))

    def test_it_is_in_the_listings_and_messages(self):
        models = json.loads(cli.must_run("models", "--json").stdout)["models"]
        self.assertIn({"name": "waves", "size": "", "layers": 3, "parameters": 3072 * 32 + 32 * 64 + 64 + 64 * 10 + 10}, models)
        self.assertIn("spirals", cli.run("datasets").stdout)
        self.assertIn("did you mean 'waves'?", cli.error_of(cli.run("train", self.config, "--set", "model.name=wave")))
        self.assertIn("did you mean 'spirals'?", cli.error_of(cli.run("train", self.config, "--set", "data.name=spiral")))

    def test_a_step_is_that_of_the_formulas(self):
        draw = np.random.default_rng(5)
        shapes = {"waves.frequencies": (2, 32), "hidden.weight": (64, 32), "hidden.bias": (64,), "head.weight": (2, 64), "head.bias": (2,)}
        weights = {name: torch.tensor(draw.normal(size=shape)) for name, shape in shapes.items()}
        batch = {"inputs": torch.tensor(draw.normal(size=(12, 2, 1, 1))), "targets": torch.tensor(draw.integers(0, 2, 12))}
        save_file(weights, self.folder / "weights.safetensors")
        save_file(batch, self.folder / "batch.safetensors")
        leaves = {name: value.clone().requires_grad_() for name, value in weights.items()}
        loss = torch.nn.functional.cross_entropy(twin(leaves, batch["inputs"]), batch["targets"])
        loss.backward()
        plans = (("zb-h1", 3), ("gpipe", 1), ("1f1b", 3))
        for schedule, stages in long_tests.some(plans[:1], plans, "other schedules"):
            with self.subTest(schedule=schedule, stages=stages):
                out = self.folder / f"{schedule}.safetensors"
                cli.must_run("step", self.config, "--weights", self.folder / "weights.safetensors",
                             "--batch", self.folder / "batch.safetensors", "--out", out, "--set", "train.precision=fp64",
                             "--set", "device.list=cpu", "--set", f"pipeline.stages={stages}", "--set", "pipeline.chunks=3",
                             "--set", f"pipeline.schedule={schedule}", "--set", "train.global_batch=12")
                ours = load_file(out)
                self.assertAlmostEqual(float(ours["loss"]), loss.item(), delta=1e-12)
                for name, leaf in leaves.items():
                    error = (ours[f"grad/{name}"] - leaf.grad).norm() / leaf.grad.norm()
                    self.assertLess(float(error), 1e-10, name)

    def test_pipelines_replicas_and_processes_train_alike(self):
        short = "train.epochs=3"
        alone = self.losses("alone", short)
        self.assertEqual(len(alone), 60)
        self.assertLess(alone[-5:].mean(), 0.5 * alone[:5].mean())
        ways = (("processes", 2, ("pipeline.stages=3", "pipeline.chunks=4")), ("stages", 1, ("pipeline.stages=3", "pipeline.chunks=4")),
                ("replicas", 1, ("replicas.local=2",)))
        for name, processes, sets in long_tests.some(ways[:1], ways, "each of them alone"):
            with self.subTest(name):
                np.testing.assert_allclose(self.losses(name, short, *sets, processes=processes), alone, rtol=1e-8)

    @long_tests.only("app_resume has it with models of ours in CI")
    def test_a_run_in_two_parts_is_the_run_in_one(self):
        whole = self.losses("whole", "train.epochs=2", "train.deterministic=true")
        stopped = self.folder / "parts"
        words = ["--set", "train.precision=fp64", "--set", "device.list=cpu", "--set", "device.threads=1", "--set", "log.every=1",
                 "--set", "train.epochs=2", "--set", "train.deterministic=true", "--set", "checkpoint.every_steps=13", "--set", "checkpoint.keep=10"]
        cli.must_run("train", self.config, "--run-dir", stopped, *words)
        cli.must_run("train", self.config, "--run-dir", self.folder / "second", "--resume", stopped / "checkpoints" / "step-13", *words)
        second = np.array([line["loss"] for line in cli.events(self.folder / "second", "step")])
        np.testing.assert_array_equal(second, whole[13:])

    def test_it_is_profiled(self):
        out = self.folder / "profile.json"
        cli.must_run("profile", self.config, "--out", out, "--set", "device.list=cpu")
        self.assertIn("waves", out.read_text())


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1))
    unittest.main()
