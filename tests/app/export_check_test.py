#!/usr/bin/env python3
"""scripts/export_model.py --check, and data that do not fit an exported model, as a user meets them.

    export_check_test.py [unittest options]        SLUICE_BINARY names the binary; exits 77 without torch
"""

import contextlib
import io
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import zipfile

import long_tests
import sluice_cli as cli

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "export_model.py"
sys.path.insert(0, str(SCRIPT.parent))
try:
    import export_model
    import torch
    from safetensors.torch import save_file
except ImportError as missing:
    print(f"skipped: {missing}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")
    sys.exit(77)

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, wide=8):
        super().__init__()
        self.body, self.drop, self.out = nn.Linear(4, wide), nn.Dropout(0.3), nn.Linear(wide, 3)

    def forward(self, x):
        return self.out(self.drop(torch.ACTIVATION(self.body(x))))

class Value(Net):
    def forward(self, x):
        return super().forward(x)[:, 0]

class Noise(Net):
    def forward(self, x):
        return super().forward(x + torch.randn_like(x))

def net():
    return Net(WIDE), {"x": torch.randn(3, 4)}

def value():
    return Value(), {"x": torch.randn(3, 4)}

def noise():
    return Noise(), {"x": torch.randn(3, 4)}
"""


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.net, self.file = self.folder / "net.py", self.folder / "m.pt2"
        self.write_net()
        (self.folder / "data").mkdir()
        for split in ("train", "test"):
            self.save(split)

    def write_net(self, activation="tanh", wide=8):
        self.net.write_text(NET.replace("ACTIVATION", activation).replace("WIDE", str(wide)), encoding="utf-8")

    def save(self, split, **changed):
        samples = {"x": torch.randn(12, 4), "targets": torch.randint(0, 3, (12,))} | changed
        save_file({name: tensor for name, tensor in samples.items() if tensor is not None}, self.folder / "data" / f"{split}.safetensors")

    def script(self, *words, **environment):
        return subprocess.run([sys.executable, SCRIPT, *map(str, words)], capture_output=True, text=True, env={**os.environ, **environment},
                              check=False)

    def export(self, function):
        words = ["export_model.py", f"{self.net}:{function}", "--out", str(self.file)]
        with unittest.mock.patch.object(sys, "argv", words), contextlib.redirect_stdout(io.StringIO()):
            export_model.main()

    def train(self, *words):
        config = cli.write_config(self.folder / "c.toml", device={"list": "cpu"}, model={"name": "pt2", "file": str(self.file)},
                                  data={"name": "tensors", "path": str(self.folder / "data")}, train={"steps": 3, "global_batch": 4})
        return cli.run("train", config, "--run-dir", self.folder / "run", *words)

    def must_train(self):
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        done = self.train()
        self.assertEqual(done.returncode, 0, done.stderr)


class Check(Case):
    def refused(self, *says, **environment):
        done = self.script("--check", self.folder / "run", **environment)
        self.assertEqual((done.returncode, done.stdout), (3, ""), done.stderr)
        [line] = done.stderr.splitlines()
        for words in says:
            self.assertIn(words, line)

    def test_both_sides_agree(self):
        for function in ("net", "value"):
            self.export(function)
            if function == "value":
                for split in ("train", "test"):
                    self.save(split, targets=torch.randn(12))
            self.must_train()
            done = self.script("--check", self.folder / "run")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("both sides agree", done.stdout)

    @long_tests.only("30 s")
    def test_what_cannot_be_compared_is_said_in_one_line(self):
        self.export("net")
        self.must_train()
        self.refused("there is no /nowhere", SLUICE_BINARY="/nowhere/sluice")
        self.write_net(activation="relu")
        self.refused("it has changed since the export")
        self.write_net(wide=9)
        self.refused("has other tensors than", "body.weight")
        self.net.unlink()
        self.refused("net.py: there is no such file")
        self.file.unlink()
        self.refused("m.pt2 (model.file of the run) is not here")

    @long_tests.only("10 s")
    def test_noise_cannot_be_compared(self):
        self.export("noise")
        self.must_train()
        self.refused("draws random numbers", "randn_like")


class Data(Case):
    def refused(self, code, *says):
        done = self.train()
        self.assertEqual(done.returncode, code, done.stderr)
        for words in says:
            self.assertIn(words, cli.error_of(done))
        self.assertEqual(cli.column(self.folder / "run", "step"), [])

    def test_both_splits_are_checked_before_the_first_step(self):
        self.export("net")
        for split, name in (("train", "tensors: "), ("test", "tensors (test): ")):
            self.save(split, targets=torch.full((12,), 3))
            self.refused(2, name, "numbers from 0 to 2, and it holds 3")
            self.save(split, targets=torch.randn(12))
            self.refused(2, name, "whole numbers")
            self.save(split, targets=torch.full((12,), -100))
            self.refused(2, name, "at least one that is not -100")
            self.save(split, x=torch.randn(12, 5))
            self.refused(2, name, "the model takes [4]")
            self.save(split, targets=None)
            self.refused(2, "takes x, targets")
            self.save(split)

    def test_targets_may_be_any_whole_numbers(self):
        self.export("net")
        targets = torch.randint(0, 3, (12,))
        losses = []
        for dtype in (torch.int64, torch.int32, torch.uint8):
            for split in ("train", "test"):
                self.save(split, x=torch.ones(12, 4), targets=targets.to(dtype))
            self.must_train()
            losses.append(cli.column(self.folder / "run", "loss"))
        self.assertEqual(losses[1:], losses[:1] * 2)

    def test_targets_that_are_not_finite_are_named(self):
        self.export("value")
        targets = torch.randn(12)
        targets[5] = float("nan")
        self.save("train", targets=targets)
        self.save("test", targets=torch.randn(12))
        done = self.train()
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("sample 5 has 1 NaN among its targets", cli.error_of(done))

    def test_a_flipped_bit_is_noticed(self):
        self.export("net")
        content = bytearray(self.file.read_bytes())
        with zipfile.ZipFile(self.file) as archive:
            [begin] = [entry.header_offset for entry in archive.infolist() if entry.filename.endswith("weights/weight_0")]
        lengths = struct.unpack("<HH", content[begin + 26:begin + 30])
        content[begin + 30 + sum(lengths) + 2] ^= 1
        self.file.write_bytes(content)
        self.refused(7, "weight_0 is damaged")


if __name__ == "__main__":
    unittest.main()
