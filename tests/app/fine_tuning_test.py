#!/usr/bin/env python3
"""model.weights of a run on other data with another number of classes. Exits 77 without safetensors.

    fine_tuning_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import json
import pathlib
import statistics
import sys
import tempfile
import unittest

import numpy as np
import torch

import long_tests
import sluice_cli as cli

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from experiments import fashion_split  # noqa: E402

try:
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")
    sys.exit(77)

HEAD = {"classifier.weight", "classifier.bias"}
LR = 0.05


def write_cifar100(folder):
    """Noise in the layout of the data set's authors, every class several times: a coarse and a fine label, 3 planes."""
    torch.manual_seed(1)
    for name, samples in (("train.bin", 400), ("test.bin", 100)):
        labels = torch.arange(samples).remainder(100)
        pixels = torch.randint(0, 256, (samples, 3 * 32 * 32))
        records = torch.cat([labels[:, None] // 5, labels[:, None], pixels], dim=1).to(torch.uint8)
        (folder / name).write_bytes(records.numpy().tobytes())
    return folder


class FineTuningTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.first = cls.configuration("first", data={"name": "cifar100", "path": str(write_cifar100(cls.folder))})
        cli.must_run("train", cls.first, "--run-dir", cls.folder / "first")
        cls.weights = cli.checkpoints(cls.folder / "first")[3] / "model.safetensors"
        cls.second = cls.configuration("second", model={"weights": str(cls.weights)}, train={"seed": 8})
        cls.said = (f"weights of {cls.weights}: {len(load_file(cls.weights)) - 2} tensors taken; "
                    "fresh: classifier.weight, classifier.bias (the file has 100 classes, the model 10); "
                    "unused: classifier.bias [100], classifier.weight [100, 64]")

    @classmethod
    def configuration(cls, name, **changes):
        tables = {
            "device": {"list": "cpu", "threads": 1},
            "model": {"name": "vit", "size": "nano", "image_size": 32, "patch_size": 8},
            "data": {"name": "shapes", "samples": 70},
            "train": {"steps": 3, "global_batch": 16, "lr": LR, "optimizer": "sgd", "weight_decay": 0,
                      "precision": "fp64", "seed": 3},
            "checkpoint": {"every_steps": 3}}
        return cli.write_config(cls.folder / f"{name}.toml",
                                **{table: {**values, **changes.get(table, {})} for table, values in tables.items()})

    def before_step(self, *arguments):
        """The parameters with which `sluice step` began: those it ended with, and what plain SGD took off."""
        out = self.folder / "out.safetensors"
        done = cli.must_run("step", self.second, "--out", out, *arguments)
        tensors = load_file(out)
        names = [name.removeprefix("param/") for name in tensors if name.startswith("param/")]
        return {name: tensors[f"param/{name}"] + LR * tensors[f"grad/{name}"] for name in names}, done.stderr

    def assert_close(self, found, expected, name):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12, msg=name)

    def test_the_body_is_the_files_and_the_head_is_fresh(self):
        file = load_file(self.weights)
        fresh, _ = self.before_step("--set", 'model.weights=""')
        for way in ((), ("--set", 'model.weights=""', "--weights", self.weights), ("--set", "pipeline.stages=3")):
            found, said = self.before_step(*way)
            self.assertEqual(found.keys(), file.keys())
            for name, tensor in found.items():
                self.assert_close(tensor, (fresh if name in HEAD else file)[name], name)
            self.assertIn(self.said, said)
        self.assertGreater(found["classifier.weight"].std().item(), 0.01)

    def test_a_run_says_it_and_trains_alike_on_any_number_of_processes(self):
        one, two = self.folder / "one", self.folder / "two"
        done = cli.must_run("train", self.second, "--run-dir", one)
        self.assertIn(self.said, done.stderr)
        self.assertIn(self.said, (one / "log.txt").read_text(encoding="utf-8"))
        run = self.folder / "first"  # stands for its newest checkpoint
        dry = cli.must_run("train", self.second, "--dry-run", "--set", f"model.weights={run}")
        self.assertIn(self.said.replace(str(self.weights), str(self.weights.parent)), dry.stderr)
        ranks = cli.must_run_ranks(2, "train", self.second, "--run-dir", two)
        self.assertIn("all 2 processes ended with bit-identical parameters", ranks[0].stderr)
        self.assertEqual([self.said in rank.stderr for rank in ranks], [True, False])
        mine, expected = (load_file(cli.checkpoints(run)[3] / "model.safetensors") for run in (two, one))
        for name, tensor in expected.items():
            torch.testing.assert_close(mine[name], tensor, rtol=1e-9, atol=1e-9, msg=name)

    def test_a_resume_goes_on_with_its_own_head(self):
        run_dir = self.folder / "resumed"
        cli.must_run("train", self.second, "--run-dir", run_dir)
        done = cli.must_run("train", self.second, "--run-dir", run_dir, "--resume", "auto", "--set", "train.steps=4")
        self.assertIn("model.weights is not read", done.stderr)
        self.assertNotIn("fresh", done.stderr)

    def test_what_is_evaluated_has_to_fit_whole(self):
        done = cli.run("eval", self.second, "--weights", self.weights)
        self.assertEqual(done.returncode, 7)
        self.assertIn("tensor 'classifier.", cli.error_of(done))
        self.assertEqual(cli.run("eval", self.second, "--checkpoint", self.folder / "first").returncode, 7)

    def test_a_file_without_a_head_is_a_start_but_one_without_a_body_is_7(self):
        tensors = load_file(self.weights)
        backbone, head = self.folder / "backbone.safetensors", self.folder / "head.safetensors"
        save_file({name: tensor for name, tensor in tensors.items() if name not in HEAD}, backbone)
        save_file({name: tensors[name] for name in HEAD}, head)
        _, said = self.before_step("--weights", backbone)
        self.assertIn(f"{len(tensors) - 2} tensors taken; fresh: classifier.weight, classifier.bias (not in the file)", said)
        out = self.folder / "none.safetensors"
        refused = cli.run("step", self.second, "--weights", head, "--out", out, "--json")
        self.assertEqual((refused.returncode, refused.stdout), (7, ""))
        self.assertIn(f"{head} has no tensor 'vit.", cli.error_of(refused))
        self.assertFalse(out.exists())

    def test_a_head_for_as_many_classes_is_taken(self):
        again = self.configuration("again", data={"name": "cifar100", "path": str(self.folder)},
                                   model={"weights": str(self.weights)})
        done = cli.must_run("step", again, "--out", self.folder / "again.safetensors", "--json")
        self.assertIn(f"{len(load_file(self.weights))} tensors taken\n", done.stderr)
        self.assertGreater(json.loads(done.stdout)["loss"], 0)


def as_arrays(idx, folder):
    """The same data as NumPy arrays, which have only the classes that there are."""
    folder.mkdir()
    for split, name in (("train", "train"), ("t10k", "test")):
        images = np.frombuffer((idx / f"{split}-images-idx3-ubyte").read_bytes()[16:], np.uint8).reshape(-1, 28, 28, 1)
        np.save(folder / f"{name}_images.npy", images)
        np.save(folder / f"{name}_labels.npy", np.frombuffer((idx / f"{split}-labels-idx1-ubyte").read_bytes()[8:], np.uint8).astype(np.int64))


@long_tests.only("seven trainings on real images")
@unittest.skipUnless(fashion_split.PLACE.exists(), "needs Debian's dataset-fashion-mnist")
class WorthTest(unittest.TestCase):
    """Real images: what was learned on six kinds of clothes helps to tell the four others apart, of which there are few."""

    SEEDS = 3

    def accuracy(self, name, data, lr, **train):
        """The last top-1 in percent, and where the weights are."""
        config = cli.write_config(
            self.folder / f"{name}.toml", device={"list": "cpu", "threads": 2}, model=train.pop("model"),
            data={"name": "npy", "path": str(self.folder / data), "crop_padding": 2, "flip": True},
            train={"global_batch": 64, "lr": lr, "optimizer": "momentum", "lr_schedule": "onecycle", "eval_limit": 2000,
                   **train}, log={"tensorboard": False})
        cli.must_run("train", config, "--run-dir", self.folder / name)
        newest = max(cli.checkpoints(self.folder / name).items())[1]
        return cli.events(self.folder / name, "eval")[-1]["top1"], newest / "model.safetensors"

    def test_fine_tuning_beats_training_from_scratch(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        fashion_split.write(self.folder / "split", samples=200)
        for half in ("source", "target"):
            as_arrays(self.folder / "split" / half, self.folder / half)
        model = {"name": "resnet8", "image_size": 28, "channels": 1}
        top1, weights = self.accuracy("first", "source", 0.05, model={**model, "classes": 6}, steps=400, seed=1)
        self.assertGreater(top1, 60)
        found = {"scratch": [], "tuned": []}
        for seed in range(1, self.SEEDS + 1):
            # Each with the better of 0.02 and 0.05, by hand.
            for way, lr, start in (("scratch", 0.05, {}), ("tuned", 0.02, {"weights": str(weights)})):
                top1, _ = self.accuracy(f"{way}{seed}", "target", lr, model={**model, "classes": 4, **start}, epochs=6, seed=seed)
                found[way].append(top1)
        print(found)
        self.assertGreater(statistics.fmean(found["tuned"]), statistics.fmean(found["scratch"]) + 3, found)


if __name__ == "__main__":
    unittest.main()
