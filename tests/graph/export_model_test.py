#!/usr/bin/env python3
"""scripts/export_model.py as a user calls it.

    export_model_test.py [unittest options]        exit status 77: no torchvision or transformers
"""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
import zipfile
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
try:
    import export_model
    import torch
    import torchvision  # noqa: F401
    import transformers
except ImportError:
    sys.exit(77)

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.drop, self.last = torch.nn.Linear(4, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 2)
        self.first.requires_grad_(False)

    def forward(self, x):
        return self.last(self.drop(torch.relu(self.first(x))))

class Loss(Net):
    def forward(self, x, y):
        return torch.nn.functional.cross_entropy(super().forward(x), y)

class Fixed(Net):
    def forward(self, x):
        return super().forward(x).view(3, 2)

def make():
    return Net(), (torch.randn(3, 4),)

def loss():
    return Loss(), {"x": torch.randn(3, 4), "y": torch.tensor([0, 1, 1])}

def fixed():
    return Fixed(), {"x": torch.randn(3, 4)}

def single():
    return Net(), torch.randn(1, 4)

def number():
    return Net(), {"x": 3}

def many():
    return Net(), (torch.randn(3, 4), torch.randn(3, 4))

class Region(Net):
    def __init__(self, region):
        super().__init__()
        self.region = region

    def forward(self, x):
        with torch.no_grad():
            x = x + 1
            with self.region():
                x = x * 2
        return super().forward(x)

class Nested(Net):
    def forward(self, x):
        y = super().forward(x)
        return None, {"parts": (y, y * 2)}

def nested():
    return Nested(), {"x": torch.randn(3, 4)}

class Changed(Net):
    def forward(self, x):
        x *= 2
        return super().forward(x)

def changed():
    return Changed(), {"x": torch.randn(3, 4)}

def batches():
    net = Net()
    net.drop = torch.nn.BatchNorm1d(8)
    return net, {"x": torch.randn(3, 4)}

def normed():
    net = Net()
    net.last = torch.nn.utils.weight_norm(net.last)
    net.first = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(4, 8))
    return net, {"x": torch.randn(3, 4)}

class Length(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(5, 4)

    def forward(self, ids):
        return self.table(ids)[:, : int(ids.size(1) * 0.5)].sum(1)

def length():
    return Length(), {"ids": torch.zeros(3, 6, dtype=torch.long)}

class Half(Net):
    def forward(self, x):
        return super().forward(x) * int(x.size(0) * 0.5)

def half():
    return Half(), {"x": torch.randn(3, 4)}

def mapped():
    class Mapped(Net):
        def forward(self, x):
            return torch.vmap(super().forward)(x)
    return Mapped(), {"x": torch.randn(3, 4)}

def autocast():
    return Region(lambda: torch.autocast("cpu", torch.bfloat16)), {"x": torch.randn(3, 4)}

def gradients():
    return Region(torch.enable_grad), {"x": torch.randn(3, 4)}

def nothing():
    return 3

def broken():
    raise ValueError("no data here")
"""


class ExportModel(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.out = self.folder / "m.pt2"
        self.net = self.folder / "net.py"
        self.net.write_text(NET)

    def call(self, *words):
        """(exit code, standard output, standard error)."""
        out, errors, code = io.StringIO(), io.StringIO(), 0
        with mock.patch.object(sys, "argv", ["export_model.py", *map(str, words)]), \
                contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            try:
                export_model.main()
            except SystemExit as end:
                code = end.code
        return code, out.getvalue(), errors.getvalue()

    def must_call(self, *words):
        code, out, errors = self.call(*words, "--out", self.out)
        self.assertEqual(code, 0, errors)
        return out

    def names_of_inputs(self):
        with zipfile.ZipFile(self.out) as archive:
            names = archive.namelist()
            [program] = [name for name in names if name.endswith("models/model.json")]
            [evaluation] = [name for name in names if name.endswith("extra/evaluation.json")]
            modes = [json.loads(archive.read(name)) for name in (program, evaluation)]
        return [[next(iter(spec.values()))["arg"].get("as_tensor", {}).get("name")
                 for spec in mode["graph_module"]["signature"]["input_specs"] if "user_input" in spec] for mode in modes]

    def test_a_module_of_a_file(self):
        out = self.must_call(f"{self.net}:make")
        for line in ("parameters  18 in 4 tensors, 40 more frozen", "program     4 nodes of 3 operators, 1 of them random",
                     "takes       x [open, 4]", "gives       [open, 2]"):
            self.assertIn(line, out.splitlines())
        self.assertEqual(self.names_of_inputs(), [["x"], ["x"]])
        self.assertEqual([file.name for file in self.folder.glob("*.pt2")], ["m.pt2"])

    def test_a_module_that_gives_its_loss(self):
        self.assertIn("gives       []", self.must_call(f"{self.net}:loss", "--loss").splitlines())
        self.assertEqual(self.names_of_inputs()[0], ["x", "y"])
        self.out.unlink()
        self.assertIn("is no single number", self.refused(3, f"{self.net}:make", "--loss"))

    def test_models_of_libraries_keep_their_names(self):
        self.must_call("--torchvision", "resnet18", "--classes", 10, "--image-size", 64)
        self.assertEqual(self.names_of_inputs()[0], ["x"])
        transformers.BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
                                vocab_size=100).save_pretrained(self.folder)
        out = self.must_call("--transformers", "BertForQuestionAnswering", "--config", self.folder)
        self.assertIn("gives       [open, open, 2]", out.splitlines())
        self.assertEqual(self.names_of_inputs()[0], ["input_ids", "attention_mask", "token_type_ids"])
        names = set(torch.export.load(self.out).state_dict)
        model = transformers.BertForQuestionAnswering(transformers.BertConfig.from_pretrained(self.folder))
        self.assertEqual(names, set(model.state_dict()))
        self.must_call("--transformers", "BertForSequenceClassification", "--config", self.folder, "--loss")
        self.assertEqual(self.names_of_inputs()[0][-1], "labels")

    def refused(self, code, *words):
        found, out, errors = self.call(*words, "--out", self.out)
        self.assertEqual((found, out), (code, ""), errors)
        self.assertFalse(self.out.exists())
        if code == 3:
            self.assertEqual(len(errors.splitlines()), 1, errors)
        return errors

    def test_what_modules_do(self):
        for function in ("nested", "changed", "normed"):
            self.must_call(f"{self.net}:{function}")

    def test_an_export_leaves_statistics_as_they_are(self):
        self.must_call(f"{self.net}:batches")
        state = torch.export.load(self.out).state_dict
        self.assertEqual((state["drop.num_batches_tracked"], state["drop.running_mean"].abs().max()), (0, 0))

    def test_a_length_that_becomes_a_number_is_fixed(self):
        out = self.must_call(f"{self.net}:length").splitlines()
        self.assertIn("the length of texts is fixed to that of the example", out[0])
        self.assertIn("takes       ids [open, 6]", out)

    def test_gradients_can_be_switched_on_again(self):
        self.must_call(f"{self.net}:gradients")  # which compares them

    def test_what_cannot_be_exported_is_said_in_one_line(self):
        for function, says in (("fixed", "fixes the size of the batch"), ("single", "a batch of two samples or more"),
                               ("number", "the example of x is no tensor"), ("many", "2 example inputs, but forward() takes 1"),
                               ("nothing", "must return (module, example_inputs)"), ("broken", "ValueError: no data here"),
                               ("other", "has no function other"), ("autocast", "torch.autocast(...) in forward() is not supported"),
                               ("half", "fixes the size of the batch")):
            self.assertIn(says, self.refused(3, f"{self.net}:{function}"))
        self.assertIn("there is no such file", self.refused(3, f"{self.folder}/no.py:make"))
        self.net.write_text("import nonsense_of_this_test")
        self.assertIn("No module named 'nonsense_of_this_test'", self.refused(3, f"{self.net}:make"))
        self.assertIn("it has resnet18", self.refused(3, "--torchvision", "resnet19"))
        self.assertIn("has no model BertForNothing", self.refused(3, "--transformers", "BertForNothing", "--config", self.folder))
        self.assertIn("has no config.json", self.refused(3, "--transformers", "BertModel", "--config", self.folder))

    def test_bad_usage(self):
        self.assertIn("name one of", self.refused(2))
        self.assertIn("name one of", self.refused(2, f"{self.net}:make", "--torchvision", "resnet18"))
        self.assertIn("belong together", self.refused(2, "--transformers", "BertModel"))
        for words in (("--weights", "DEFAULT"), ("--image-size", 32), ("--classes", 3)):
            self.assertIn(f"{words[0]} is of --torchvision", self.refused(2, f"{self.net}:make", *words))
        code, _, errors = self.call(f"{self.net}:make", "--out", self.folder / "m.pt")
        self.assertEqual(code, 2)
        self.assertIn("must end with .pt2", errors)
        code, _, errors = self.call(f"{self.net}:make", "--out", self.folder / "none" / "m.pt2")
        self.assertEqual(code, 8)
        self.assertIn("cannot write", errors)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
