"""Small text models with their tokenizer, configuration and data, for tests of text training."""

import json
import pathlib
import random
import tempfile
import unittest

import sluice_cli as cli
import tokenizers
import torch

STEPS, ROWS, LENGTH = 30, 8, 24
WORDS = "a river runs past old mills while quiet herons stand near reeds and watch small silver fish".split()
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "max_position_embeddings": 64}


def sentence(rng, words):
    return " ".join(rng.choice(WORDS) for _ in range(words))


def questions(rng, count):
    paragraphs = []
    for number in range(count):
        context = sentence(rng, rng.randrange(5, 12))
        begin = context.index(" ") + 1
        answer = context[begin:].split()[0]
        paragraphs.append({"context": context, "qas": [{"id": f"q{number}", "question": sentence(rng, 3), "answers": [
            {"text": answer, "answer_start": begin}]}]})
    return {"version": "1.1", "data": [{"title": "mills", "paragraphs": paragraphs}]}


def make_tokenizer(file):
    tokenizer = tokenizers.BertWordPieceTokenizer()
    tokenizer.train_from_iterator([" ".join(WORDS)] * 4, vocab_size=120, min_frequency=1, show_progress=False)
    ends = [(token, tokenizer.token_to_id(token)) for token in ("[SEP]", "[CLS]")]
    tokenizer._tokenizer.post_processor = tokenizers.processors.BertProcessing(*ends)
    tokenizer.save(str(file))
    return tokenizer.get_vocab_size()


class TextCase(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.rng = random.Random(1)
        self.vocabulary = make_tokenizer(self.folder / "tokenizer.json")
        self.tokenizer = tokenizers.Tokenizer.from_file(str(self.folder / "tokenizer.json"))

    def save_model(self, kind, config):
        torch.manual_seed(1)
        model = kind._from_config(config, dtype=torch.float64, attn_implementation="sdpa")
        model.save_pretrained(self.folder / "start")
        return model.train()

    def configuration(self, name, data, task, **more):
        tables = {
            "device": {"list": "cpu", "threads": 1},
            "model": {"name": name, "config": str(self.folder / "start/config.json"), "weights": str(self.folder / "start"),
                      "task": task},
            "data": {"path": str(self.folder), "tokenizer": str(self.folder / "tokenizer.json"), "max_length": LENGTH, **data},
            "train": {"steps": STEPS, "global_batch": ROWS, "eval_batch": 3, "optimizer": "adamw", "lr": 1e-3,
                      "weight_decay": 0.01, "clip_norm": 1.0, "precision": "fp64", "deterministic": True},
            "checkpoint": {"every_steps": 10},
            "log": {"tensorboard": False},
        }
        for table, values in more.items():
            tables.setdefault(table, {}).update(values)
        return cli.write_config(self.folder / f"{task}.toml", **tables)

    def write_rows(self, name, rows):
        (self.folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def train(self, config, run, *arguments):
        cli.must_run("train", config, "--run-dir", self.folder / run, *arguments)
        return cli.checkpoints(self.folder / run)[STEPS]
