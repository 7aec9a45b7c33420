#!/usr/bin/env python3
"""Text data and weights that must fit each other: classes, tokenizers, documents; and what is refused.

    text_labels_test.py [unittest options]        SLUICE_BINARY names the binary; exit status 77: no transformers
"""

import json
import math
import sys
import unittest

import long_tests
import sluice_cli as cli

try:
    import torch
    import transformers
    from safetensors.torch import load_file
    from text_case import LENGTH, SIZES, WORDS, TextCase, sentence
except ImportError:
    sys.exit(77)


class TextLabels(TextCase):
    def test_evaluations_number_classes_as_the_checkpoint_does(self):
        labels = ("bad", "fair", "good")
        rows = [{"text": sentence(self.rng, 4), "label": label} for label in labels * 8]
        self.write_rows("train.jsonl", rows)
        self.write_rows("test.jsonl", rows)
        self.save_model(transformers.BertForSequenceClassification,
                        transformers.BertConfig(vocab_size=self.vocabulary, num_attention_heads=2, num_labels=3, **SIZES))
        file = self.configuration("bert", {"name": "jsonl"}, "classify")
        end = self.train(file, "run")
        cli.must_run("eval", "--checkpoint", end, "--logits", self.folder / "logits.safetensors")
        whole = load_file(self.folder / "logits.safetensors")
        losses = torch.nn.functional.cross_entropy(whole["logits"], whole["labels"], reduction="none")
        self.assertEqual(whole["labels"].tolist(), [0, 1, 2] * 8)
        (self.folder / "some").mkdir()
        some = cli.options(data={"path": str(self.folder / "some")}, train={"steps": 0, "epochs": 1, "warmup_steps": 5})
        for wanted in (labels[1:], labels[:2], labels[::2]):
            for name in ("train", "test"):
                self.write_rows(f"some/{name}.jsonl", [row for row in rows if row["label"] in wanted])
            expected = losses[[row["label"] in wanted for row in rows]].mean().item()
            for source in (("--checkpoint", end), (file, "--weights", end)):
                found = json.loads(cli.must_run("eval", *source, *some, "--json").stdout)
                self.assertAlmostEqual(found["loss"], expected, places=9, msg=(wanted, source))
        self.write_rows("some/test.jsonl", [row | {"label": "worse"} for row in rows])
        self.assertIn("not one of the classes: bad, fair, good", cli.error_of(cli.run("eval", "--checkpoint", end, *some)))

    def test_classes_have_the_order_of_the_head_that_is_taken(self):
        rows = [{"text": sentence(self.rng, 4) + (" a" if label == "neg" else " fish"), "label": label} for label in ("neg", "pos") * 8]
        self.write_rows("train.jsonl", rows)
        self.write_rows("test.jsonl", rows)
        config = transformers.BertConfig(vocab_size=self.vocabulary, num_attention_heads=2, **SIZES,
                                         id2label={0: "pos", 1: "neg"}, label2id={"pos": 0, "neg": 1})
        self.save_model(transformers.BertForSequenceClassification, config)
        file = self.configuration("bert", {"name": "jsonl"}, "classify")
        trained = self.train(file, "run", "--set", "train.lr=0.005")
        loss = json.loads(cli.must_run("eval", "--checkpoint", trained, "--json").stdout)["loss"]
        self.assertLess(loss, 0.6, "the other order would be worse than chance")
        plain, named = self.folder / "plain", self.folder / "start/config.json"
        plain.mkdir()
        (plain / "model.safetensors").write_bytes((trained / "model.safetensors").read_bytes())
        fields = {key: value for key, value in config.to_dict().items() if key not in ("id2label", "label2id")}
        (plain / "config.json").write_text(json.dumps(fields))
        for weights, of_model in ((trained, named), (trained, plain / "config.json"), (plain, named)):
            sets = cli.options(model={"config": str(of_model)})
            found = json.loads(cli.must_run("eval", file, "--weights", weights, *sets, "--json").stdout)
            self.assertAlmostEqual(found["loss"], loss, places=12, msg=(weights, of_model))
            run = self.folder / f"{weights.name}-{of_model.parent.name}"
            sets += cli.options(model={"weights": str(weights)}, train={"steps": 1, "lr": 1e-12})
            cli.must_run("train", file, "--run-dir", run, *sets)
            self.assertAlmostEqual(cli.events(run, "eval")[-1]["loss"], loss, places=8, msg=run)

    @long_tests.only("9 s")
    def test_adapters_bring_the_order_of_their_classes(self):
        rows = [{"text": sentence(self.rng, 4), "label": label} for label in ("neg", "pos") * 8]
        self.write_rows("train.jsonl", rows)
        self.write_rows("test.jsonl", rows[:5])
        sizes = {"vocab_size": self.vocabulary, "num_attention_heads": 2, **SIZES}
        ordered = transformers.BertConfig(**sizes, id2label={0: "pos", 1: "neg"}, label2id={"pos": 0, "neg": 1})
        ordered.save_pretrained(self.folder / "ordered")
        self.save_model(transformers.BertForSequenceClassification, transformers.BertConfig(**sizes))
        file = self.configuration("bert", {"name": "jsonl"}, "classify", model={"lora_rank": 2})
        of_head = cli.options(model={"config": str(self.folder / "ordered/config.json")})
        trained = self.train(file, "run", *of_head, *cli.options(train={"lr": 0.01}))
        loss = json.loads(cli.must_run("eval", "--checkpoint", trained, "--json").stdout)["loss"]
        found = json.loads(cli.must_run("eval", file, "--weights", self.folder / "start", "--json",
                                        *cli.options(model={"lora_weights": str(trained)})).stdout)
        self.assertAlmostEqual(found["loss"], loss, places=12)
        of_run = cli.options(model={"weights": str(self.folder / "run"), "lora_weights": str(trained)}, train={"steps": 1, "lr": 1e-12})
        cli.must_run("train", file, "--run-dir", self.folder / "again", *of_run)
        self.assertAlmostEqual(cli.events(self.folder / "again", "eval")[-1]["loss"], loss, places=8, msg="weights of a run")

    def test_another_tokenizer_than_the_one_beside_the_weights_is_said(self):
        rows = [{"text": sentence(self.rng, 4), "label": label} for label in "xy" * 4]
        self.write_rows("train.jsonl", rows)
        self.write_rows("test.jsonl", rows)
        self.save_model(transformers.BertForSequenceClassification,
                        transformers.BertConfig(vocab_size=self.vocabulary, num_attention_heads=2, **SIZES))
        file = self.configuration("bert", {"name": "jsonl"}, "classify", train={"steps": 1})
        cli.must_run("train", file, "--run-dir", self.folder / "run")
        trained = cli.checkpoints(self.folder / "run")[1]
        said = "is another file than"
        self.assertNotIn(said, cli.must_run("eval", file, "--weights", trained).stderr)
        other = self.tokenizer.to_str().replace('"river"', '"silver "').replace('"silver"', '"river"').replace('"silver "', '"silver"')
        (self.folder / "other.json").write_text(other)
        sets = cli.options(data={"tokenizer": str(self.folder / "other.json")})
        self.assertIn(said, cli.must_run("eval", file, "--weights", trained, *sets).stderr)
        self.assertIn(said, cli.must_run("train", file, "--run-dir", self.folder / "again", *sets,
                                         *cli.options(model={"weights": str(trained)})).stderr)

    def test_documents_of_a_text_are_a_file_lines_or_what_blank_lines_separate(self):
        lines = [" ".join(self.rng.sample(WORDS, 6)) + "\n" for _ in range(10)]
        for name in ("train.txt", "val.txt"):
            (self.folder / name).write_text("\n".join(a + b for a, b in zip(lines[::2], lines[1::2])))
        self.save_model(transformers.BertForMaskedLM,
                        transformers.BertConfig(vocab_size=self.vocabulary, num_attention_heads=2, **SIZES))
        (self.folder / "tokenizer.json").rename(self.folder / "words.json")
        file = self.configuration("bert", {"name": "text", "pack": "documents", "tokenizer": str(self.folder / "words.json")},
                                  "mlm", train={"global_batch": 1, "steps": 1})
        around = 2  # tokens around a document
        packed = {"file": math.ceil((60 + around) / LENGTH), "line": 10 / (LENGTH // (6 + around)),
                  "blank": 5 / (LENGTH // (12 + around))}
        for documents, samples in packed.items():
            cli.must_run("train", file, "--run-dir", self.folder / documents, *cli.options(data={"documents": documents}))
            self.assertEqual(cli.events(self.folder / documents, "step")[0]["batches"], math.ceil(samples), documents)
        saved = {file.name for file in cli.checkpoints(self.folder / "line")[1].iterdir()}
        self.assertIn("tokenizer.json", saved, "the name that from_pretrained() looks for")
        self.assertNotIn("words.json", saved)

    def test_what_does_not_fit_is_refused(self):
        self.write_rows("train.jsonl", [{"text": "a river", "label": "x"}, {"text": "old", "label": "y"}] * 4)
        self.write_rows("test.jsonl", [{"text": "a", "label": "x"}])
        config = transformers.BertConfig(vocab_size=self.vocabulary - 1, num_attention_heads=2, **SIZES)
        self.save_model(transformers.BertForSequenceClassification, config)
        file = self.configuration("bert", {"name": "jsonl"}, "classify")
        self.assertIn("take the tokenizer that belongs to the model", self.refused(file))
        self.save_model(transformers.BertForSequenceClassification, transformers.BertConfig(
            vocab_size=2 * self.vocabulary, num_attention_heads=2, **SIZES))
        done = cli.must_run("train", file, "--run-dir", self.folder / "small", *cli.options(train={"steps": 1}))
        self.assertIn("were trained with another tokenizer, set data.tokenizer to that", done.stderr)
        self.save_model(transformers.BertForSequenceClassification, transformers.BertConfig(
            vocab_size=self.vocabulary, num_attention_heads=2, **SIZES))
        tokens = cli.options(data={"name": "toy", "tokenizer": ""}, model={"classes": 2})
        self.assertIn('model.task = "classify" does not fit data set toy', self.refused(file, *tokens))
        pair = cli.options(model={"task": "mlm"}, data={"pair_column": "label"})
        self.assertIn('data.pair_column = "label" applies only to model.task = "classify"', self.refused(file, *pair))
        for data, needed in (({"pack": "documents"}, "needs a language model"), ({"documents": "line"}, "needs data.name")):
            self.assertIn(needed, self.refused(file, *cli.options(data=data)))
        done = cli.run("eval", file, "--weights", self.folder / "start", "--predictions", self.folder / "out.json")
        self.assertIn('model.task is not "qa"', cli.error_of(done))
        self.assertFalse((self.folder / "out.json").exists())


    def refused(self, config, *sets):
        done = cli.run("train", config, "--run-dir", self.folder / "refused", *sets)
        self.assertNotEqual(done.returncode, 0)
        return cli.error_of(done)


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    unittest.main()
