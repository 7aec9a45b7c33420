#!/usr/bin/env python3
"""Adapters of model.lora_rank in files: saved, merged, resumed and read by transformers and, if installed, by peft.

    lora_files_test.py [unittest options]  SLUICE_BINARY names the binary; exits 77 without transformers
"""

import pathlib
import shutil
import sys
import tempfile
import unittest

import torch

import sluice_cli as cli

try:
    import tokenizers
    import transformers
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"skipped: {missing}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")
    sys.exit(77)
try:
    import peft
except ImportError:
    peft = None

import lora_models as models
from lora_models import assert_close

CLASSIFIER = transformers.AutoModelForSequenceClassification
ADAPTER = ("adapter_model.safetensors", "adapter_config.json")


class LoraFilesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        models.make_base("bert", cls.folder / "base")
        cls.data, cls.texts = models.write_texts(cls.folder)
        cls.config = models.write_config(cls.folder, "bert", data=cls.data, checkpoint={"every_steps": 2})
        cls.log = cli.must_run("train", cls.config, "--run-dir", cls.folder / "run").stderr
        cls.first, cls.last = (cli.checkpoints(cls.folder / "run")[step] for step in (2, 4))
        cls.adapter = cls.folder / "adapter"
        cls.adapter.mkdir()
        for name in ADAPTER:
            shutil.copy(cls.last / name, cls.adapter)
        cls.logits = cls.logits_of_run("--checkpoint", cls.last)

    @classmethod
    def logits_of_run(cls, *arguments):
        out = cls.folder / "logits.safetensors"
        cli.must_run("eval", *arguments, "--set", "data.pad=max", "--logits", out)
        return load_file(out)["logits"]

    def logits_of_library(self, model):
        tokenizer = tokenizers.BertWordPieceTokenizer(str(self.folder / "vocab.txt"))
        with torch.no_grad():
            return torch.cat([model(torch.tensor([tokenizer.encode(text).ids])).logits for text in self.texts])

    def test_only_adapters_and_head_are_trained(self):
        base, trained = load_file(self.folder / "base/model.safetensors"), load_file(self.last / "model.safetensors")
        for name, tensor in base.items():
            self.assertEqual(torch.equal(trained[name], tensor), not name.startswith("classifier"), name)
        names = {name.removeprefix("base_model.model.") for name in load_file(self.adapter / ADAPTER[0])}
        self.assertEqual(names, set(trained) - set(base) | {"classifier.weight", "classifier.bias"})
        count = sum(trained[name].numel() for name in names)
        self.assertIn(f" parameters, {count} of them trained) on ", self.log)
        self.assertIn("fresh: 11 adapters", self.log)

    def test_merged_weights_give_the_same_logits(self):
        out = self.folder / "merged"
        cli.must_run("merge", self.folder / "run", "--out", out)
        self.assertGreater((self.logits - self.logits_of_run("--checkpoint", self.first)).abs().max(), 1e-4)
        ours = self.logits_of_run(self.config, "--weights", out, "--set", "model.lora_rank=0")
        assert_close(self.logits, ours, "sluice")
        merged = CLASSIFIER.from_pretrained(out, dtype=torch.float64).eval()
        assert_close(self.logits, self.logits_of_library(merged), "transformers")

    def test_a_resumed_run_ends_with_the_same_bits(self):
        folder = self.folder / "resumed"
        shutil.copytree(self.first, folder / "checkpoints/step-2")
        cli.must_run("train", self.config, "--run-dir", folder, "--resume", folder)
        for name in ("model", "optimizer", "adapter_model"):
            once, again = (load_file(path / f"{name}.safetensors") for path in (self.last, cli.checkpoints(folder)[4]))
            self.assertEqual(set(once), set(again))
            self.assertTrue(all(torch.equal(once[key], again[key]) for key in once), name)

    def test_adapters_of_a_folder_are_starting_weights(self):
        for adapter in (self.adapter, self.folder / "run"):
            options = ("--weights", self.folder / "base", "--set", f"model.lora_weights={adapter}")
            assert_close(self.logits, self.logits_of_run(self.config, *options), "adapters of a folder")
        own = ("--weights", self.last, "--set", f"model.lora_weights={self.first}")
        assert_close(self.logits, self.logits_of_run(self.config, *own), "a file with adapters of its own")
        out = self.folder / "step.safetensors"
        losses = []
        for weights in (self.last, self.first):  # `step` reads adapters as `eval` does
            cli.must_run("step", self.config, "--weights", self.last, "--set", f"model.lora_weights={weights}", "--out", out)
            losses.append(load_file(out)["loss"])
        self.assertEqual(*losses)
        done = self.refused(7, lora_weights=str(self.adapter), lora_rank=2)
        self.assertIn("r = 4, but model.lora_rank = 2; set model.lora_rank = 4", done)

    @unittest.skipIf(peft is None, "peft is not installed")
    def test_peft_reads_the_adapters(self):
        base = CLASSIFIER.from_pretrained(self.folder / "base", dtype=torch.float64)
        adapted = peft.PeftModel.from_pretrained(base, self.adapter).eval()
        assert_close(self.logits, self.logits_of_library(adapted), "peft")
        adapted.save_pretrained(self.folder / "of_peft")
        again = load_file(self.folder / "of_peft" / ADAPTER[0])
        self.assertEqual(set(again), set(load_file(self.adapter / ADAPTER[0])))
        options = ("--weights", self.folder / "base", "--set", f"model.lora_weights={self.folder / 'of_peft'}")
        assert_close(self.logits, self.logits_of_run(self.config, *options), "a folder of peft")

    def refused(self, code, **model):
        """What a run says that ends with this exit code."""
        done = cli.run("train", self.config, "--run-dir", self.folder / "refused", *cli.options(model=model))
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def test_what_does_not_fit_is_refused(self):
        self.assertIn("did you mean 'query'?", self.refused(2, lora_targets=["quary"]))
        self.assertIn("is larger than the layer", self.refused(2, lora_rank=33))
        self.assertIn("but model.weights is empty", self.refused(2, lora_weights=str(self.adapter), weights=""))
        self.assertIn("set model.lora_rank, for example to 8", self.refused(2, lora_rank=0, lora_alpha=3))
        for words in (("train", self.config, "--set", f"model.weights={self.last}"), ("eval", self.config, "--weights", self.last)):
            done = cli.run(*words, "--set", "model.lora_alpha=3")
            self.assertEqual(done.returncode, 7, done.stderr)
            self.assertIn(f"were trained with model.lora_alpha = {models.ALPHA}, but it is 3 now", done.stderr)
        done = self.refused(7, lora_rank=0, weights=str(self.last))
        self.assertIn("has LoRA adapters, but model.lora_rank = 0", done)
        done = cli.run("merge", self.adapter, "--out", self.folder / "none")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertIn("no checkpoint found", done.stderr)


if __name__ == "__main__":
    unittest.main()
