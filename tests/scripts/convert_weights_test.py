#!/usr/bin/env python3
"""scripts/convert_weights.py on what training programs save. Exits 77 without torch and safetensors."""

import argparse
import collections
import contextlib
import io
import pathlib
import pickle
import sys
import tempfile
import unittest

from script_copy import REPOSITORY

try:
    import torch
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"skipped: {missing}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")
    sys.exit(77)

sys.path.insert(0, str(REPOSITORY / "scripts"))
import convert_weights  # noqa: E402

WEIGHTS = {"fc.weight": torch.randn(3, 4).t(), "bn.num_batches_tracked": torch.tensor(7), "half": torch.ones(2).bfloat16()}


class Planted:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return (pathlib.Path("planted").touch, ())


class ConvertWeightsTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(contextlib.chdir(self.folder))

    def convert(self, saved, *options):
        """Exit code and what was said on standard error."""
        torch.save(saved, "in.pth")
        return self.run_script("in.pth", "out.safetensors", *options)

    def run_script(self, *arguments):
        said = io.StringIO()
        old, sys.argv = sys.argv, ["convert_weights.py", *arguments]
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                return convert_weights.main(), said.getvalue()
        finally:
            sys.argv = old

    def assert_converts(self, saved, *options, expected=None):
        self.assertEqual(self.convert(saved, *options), (0, ""))
        found = load_file("out.safetensors")
        expected = expected or WEIGHTS
        self.assertEqual(found.keys(), expected.keys())
        for name, tensor in expected.items():
            self.assertEqual(found[name].dtype, tensor.dtype)
            self.assertTrue(torch.equal(found[name], tensor), name)

    def assert_refuses(self, code, words, saved, *options):
        found, said = self.convert(saved, *options)
        self.assertEqual(found, code, said)
        *warnings, message = said.splitlines()  # torch warns of sparse tensors
        self.assertEqual([line for line in warnings if line.startswith("convert_weights")], [])
        self.assertRegex(message, words)
        self.assertEqual(list(self.folder.glob("out*")), [])

    def test_tables_of_tensors_however_they_are_wrapped(self):
        wrapped = {f"module.{name}": tensor for name, tensor in WEIGHTS.items()}
        compiled = {f"_orig_mod.module.{name}": tensor for name, tensor in WEIGHTS.items()}
        for saved in (WEIGHTS, collections.OrderedDict(WEIGHTS), wrapped, compiled,
                      {"state_dict": WEIGHTS, "epoch": 3, "optimizer": {"state": {}}}, {"model": wrapped, "args": None},
                      {"model_ema": {"module": WEIGHTS}}, {"model_state_dict": WEIGHTS, "loss": 0.5}):
            self.assert_converts(saved)

    def test_an_averaged_model_as_torch_saves_it(self):
        averaged = torch.optim.swa_utils.AveragedModel(torch.nn.Linear(2, 3)).state_dict()
        self.assertIn("n_averaged", averaged)
        expected = {name.removeprefix("module."): value for name, value in averaged.items() if name != "n_averaged"}
        for saved in (averaged, {"model_ema": averaged}):
            self.assert_converts(saved, expected=expected)

    def test_a_prefix_that_only_some_names_have_stays(self):
        mixed = {"module.a": torch.ones(1), "b": torch.ones(2)}
        self.assert_converts(mixed, expected=mixed)

    def test_one_word_before_names_that_are_known_is_taken_off(self):
        known = {"conv1.weight": torch.randn(2, 2), "layer1.0.bn1.running_mean": torch.zeros(2), "fc.bias": torch.ones(3)}
        for prefix in ("model.", "net.", "backbone.", "module.model.", "_orig_mod.net."):
            self.assert_converts({"state_dict": {prefix + name: value for name, value in known.items()}}, expected=known)
        for names in (("vit.embeddings.cls_token", "vit.encoder.layer.0.output.dense.bias"), ("encoder.ln.weight", "encoder.ln.bias"),
                      ("net.first.weight", "net.second.weight"), ("model.conv1.weight", "criterion.weight")):
            tensors = {name: torch.ones(1) for name in names}
            self.assert_converts(tensors, expected=tensors)

    def test_the_options_of_a_trainer_beside_the_weights_are_read(self):
        options = argparse.Namespace(lr=0.1, model="resnet18", milestones=[30, 60])
        self.assert_converts({"model": WEIGHTS, "args": options, "epoch": 3})
        self.assert_refuses_planted(argparse.Namespace(lr=0.1, planted=Planted()))

    def assert_refuses_planted(self, options):
        pathlib.Path("out.safetensors").unlink()
        self.assert_refuses(7, "cannot be read as weights alone", {"model": WEIGHTS, "args": options})
        self.assertFalse(pathlib.Path("planted").exists())

    def test_tensors_that_share_memory_are_written_each(self):
        shared = torch.randn(4, 4)
        self.assert_converts({"a": shared, "b": shared, "row": shared[1]}, expected={"a": shared, "b": shared, "row": shared[1]})

    def test_of_several_tables_the_key_says_which(self):
        both = {"model": {"a": torch.zeros(1)}, "model_ema": WEIGHTS, "more": {"deep": WEIGHTS}}
        self.assert_refuses(2, "weights under model and model_ema; choose one with --key", both)
        self.assert_converts(both, "--key", "model_ema")
        self.assert_converts(both, "--key", "more.deep")
        (self.folder / "out.safetensors").unlink()
        self.assert_refuses(7, "no entry 'nets'; it has 'model' .dict., 'model_ema' .dict.", both, "--key", "nets")

    def test_what_is_no_table_of_tensors_is_refused(self):
        self.assert_refuses(7, "'epoch' is no tensor but a int; it has 'epoch' .int., 'net' .dict.",
                            {"epoch": 3, "net": WEIGHTS})
        self.assert_refuses(7, "no table of tensors by name; it has a list", [torch.ones(1)])
        self.assert_refuses(7, "no table of tensors by name", {})
        self.assert_refuses(7, "'s' is a sparse_coo tensor of float32; only dense real ones", {"s": torch.ones(2).to_sparse()})
        self.assert_refuses(7, "'c' is a strided tensor of complex64", {"c": torch.ones(2, dtype=torch.complex64)})

    def test_code_in_a_file_is_not_run(self):
        self.assert_refuses(7, "cannot be read as weights alone", {"state_dict": WEIGHTS, "extra": Planted()})
        self.assert_refuses(7, r"cannot be read as weights alone: it holds Python objects .torch.nn.modules.linear.Linear.; save", torch.nn.Linear(2, 2))
        pathlib.Path("in.pth").write_bytes(pickle.dumps(Planted()))
        self.assertEqual(self.run_script("in.pth", "out.safetensors")[0], 7)
        self.assertFalse(pathlib.Path("planted").exists())

    def test_files_that_cannot_be_read_or_written(self):
        self.assertEqual(self.run_script("none.pth", "out.safetensors"),
                         (7, "convert_weights.py: there is no file none.pth; check the path\n"))
        pathlib.Path("in.pth").write_bytes(b"no pickle")
        self.assertEqual(self.run_script("in.pth", "out.safetensors")[0], 7)
        torch.save(WEIGHTS, "in.pth")
        whole = pathlib.Path("in.pth").read_bytes()
        pathlib.Path("in.pth").write_bytes(whole[: len(whole) // 2])
        self.assertEqual(self.run_script("in.pth", "out.safetensors")[0], 7)
        torch.save(WEIGHTS, "in.pth")
        self.assertEqual(self.run_script("in.pth", "out.pth")[0], 2)
        code, said = self.run_script("in.pth", "nowhere/out.safetensors")
        self.assertEqual(code, 8)
        self.assertIn("cannot write nowhere/out.safetensors", said)

    def test_an_earlier_file_stays_until_the_new_one_is_whole(self):
        earlier = pathlib.Path("out.safetensors")
        earlier.write_bytes(b"earlier")
        found, _ = self.convert({"a": 3})
        self.assertEqual((found, earlier.read_bytes()), (7, b"earlier"))
        self.assert_converts(WEIGHTS)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["in.pth", "out.safetensors"])


if __name__ == "__main__":
    unittest.main()
