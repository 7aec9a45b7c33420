#!/usr/bin/env python3
"""model.name = "pt2": MiniLM's real weights, exported, fine-tune as the built-in BERT does.

    exported_text_test.py [unittest options]        SLUICE_BINARY names the binary; exits 77 if a package is missing
"""

import argparse
import pathlib
import sys
import tempfile
import unittest
import zipfile

import sluice_cli as cli

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
try:
    import export_model
    import export_sources
    import torch
    import transformers
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"skipped: {missing}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")
    sys.exit(77)
from experiments import text_task

torch.set_num_threads(1)
WORDS = "herons friction gate miller opened commonwealth constitution physics daughter river ignored adopted".split()


def rows(count, seed):
    """Texts of different lengths; the label says which of two words is in them."""
    lines, order = ["sentence\tlabel"], torch.Generator().manual_seed(seed)
    for i in range(count):
        words = [WORDS[k] for k in torch.randint(2, len(WORDS), (3 + i % 9,), generator=order)]
        lines.append(" ".join([*words, WORDS[i % 2]]) + f"\t{i % 2}")
    return "\n".join(lines) + "\n"


class ExportedMiniLm(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        with zipfile.ZipFile(text_task.minilm_archive()) as packed:
            packed.extractall(self.folder / "minilm", text_task.MODEL_FILES)
        for split, count in (("train", 48), ("test", 8)):
            (self.folder / f"{split}.tsv").write_text(rows(count, seed=count), encoding="utf-8")
        torch.manual_seed(0)
        kind = transformers.BertForSequenceClassification
        self.module = kind.from_pretrained(self.folder / "minilm", num_hidden_layers=2, hidden_dropout_prob=0.0,
                                           attention_probs_dropout_prob=0.0, num_labels=2, dtype=torch.float32)
        self.module.save_pretrained(self.folder / "start")

    def export(self):
        arguments = argparse.Namespace(transformers="BertForSequenceClassification", config=self.folder / "start",
                                                    loss=False, classes=None)
        module, inputs = export_sources.from_transformers(arguments)
        file = self.folder / "m.pt2"
        export_model.export_to(file, module, inputs)
        return file

    def train(self, name, model, **tables):
        config = cli.write_config(
            self.folder / f"{name}.toml", device={"list": "cpu"}, model=model,
            data={"name": "csv", "path": str(self.folder), "tokenizer": str(self.folder / "minilm/tokenizer.json"),
                  "text_column": "sentence", "label_column": "label", "max_length": 32},
            train={"steps": 10, "global_batch": 8, "optimizer": "adamw", "lr": 1e-4, "precision": "fp64", "seed": 1,
                   "clip_norm": 1.0}, **tables)
        run = self.folder / name
        cli.must_run("train", config, "--run-dir", run)
        return cli.column(run, "loss"), load_file(max(cli.checkpoints(run).items())[1] / "model.safetensors"), cli.events(run, "eval")

    def test_it_fine_tunes_as_the_built_in_bert(self):
        built_in = {"name": "bert", "task": "classify", "config": str(self.folder / "start/config.json"),
                    "weights": str(self.folder / "start"), "dropout": 0.0}
        losses, weights, evaluations = self.train("built_in", built_in)
        exported = {"name": "pt2", "task": "classify", "file": str(self.export())}
        for pipeline in ({}, {"stages": 2, "chunks": 2, "partition": [4, 5]}):
            own, own_weights, own_evaluations = self.train(f"exported{len(pipeline)}", exported, pipeline=pipeline)
            for mine, theirs in zip(own, losses, strict=True):
                self.assertAlmostEqual(mine, theirs, delta=1e-10 * theirs)
            self.assertEqual(own_weights.keys() - {"bert.embeddings.position_ids"}, weights.keys())
            for key, tensor in weights.items():
                torch.testing.assert_close(own_weights[key], tensor, rtol=1e-6, atol=1e-7, msg=lambda text, of=key: f"{of}: {text}")
            self.assertEqual(own_evaluations[-1]["top1"], evaluations[-1]["top1"])


if __name__ == "__main__":
    unittest.main()
