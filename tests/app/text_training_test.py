#!/usr/bin/env python3
"""Text end to end: training as a plain PyTorch loop with transformers does it, and what is saved, resumed and evaluated.

    text_training_test.py [unittest options]        SLUICE_BINARY names the binary; exit status 77: no transformers
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
    from text_case import LENGTH, ROWS, SIZES, STEPS, WORDS, TextCase, questions, sentence
except ImportError:
    sys.exit(77)

from text_loops import EXACT, batch_of, train_loop


class TextTraining(TextCase):
    def assert_equals_loop(self, checkpoint, model):
        ours, theirs = load_file(checkpoint / "model.safetensors"), model.state_dict()
        gradients = {name: parameter.grad.norm() for name, parameter in model.named_parameters()}
        negligible = 1e-10 * max(gradients.values())  # rounding alone, of which AdamW takes the sign
        trained = [name for name in ours if gradients[name] > negligible]
        self.assertGreater(len(trained), len(ours) - 5)
        for name, tensor in ((name, ours[name]) for name in trained):
            error = (tensor - theirs[name]).norm() / theirs[name].norm()
            self.assertLess(error.item(), 1e-8, name)
        loaded, info = type(model).from_pretrained(checkpoint, dtype=torch.float64, output_loading_info=True)
        self.assertFalse(info["missing_keys"] or info["unexpected_keys"], info)
        for name, tensor in loaded.state_dict().items():
            if name in ours:
                self.assertTrue(torch.equal(tensor, ours[name]), name)

    def test_questions_follow_a_loop_and_answers_are_scored(self):
        for name in ("train", "dev"):
            (self.folder / f"{name}.json").write_text(json.dumps(questions(self.rng, ROWS)), encoding="utf-8")
        config = transformers.BertConfig(vocab_size=self.vocabulary, num_attention_heads=2, **SIZES)
        model = self.save_model(transformers.BertForQuestionAnswering, config)
        root = json.loads((self.folder / "train.json").read_text())
        train_loop(model, batch_of(self.tokenizer, root=root), STEPS, lr=1e-3)
        file = self.configuration("bert", {"name": "squad", "stride": 4}, "qa", pipeline={"stages": 2, "chunks": 3})
        end = self.train(file, "stages")
        self.assert_equals_loop(end, model)
        self.assertIsInstance(transformers.AutoTokenizer.from_pretrained(end)("a river")["input_ids"], list)
        self.assert_answers(file, end)

    def test_processes_score_answers_together(self):
        for name, count in (("train", ROWS), ("dev", 7)):
            (self.folder / f"{name}.json").write_text(json.dumps(questions(self.rng, count)), encoding="utf-8")
        self.save_model(transformers.BertForQuestionAnswering,
                        transformers.BertConfig(vocab_size=self.vocabulary, num_attention_heads=2, **SIZES))
        file = self.configuration("bert", {"name": "squad", "stride": 4}, "qa", train={"lr": 1e-2, "ema_decay": 0.5})
        cli.must_run_ranks(2, "train", file, "--run-dir", self.folder / "ranks")
        event = cli.events(self.folder / "ranks", "eval")[-1]
        end = cli.checkpoints(self.folder / "ranks")[STEPS]
        alone = json.loads(cli.must_run("eval", file, "--weights", end / "model.safetensors", "--json").stdout)
        averaged = json.loads(cli.must_run("eval", "--checkpoint", end, "--ema", "--json").stdout)
        for score in ("exact_match", "f1", "span_f1", "span", "loss"):
            self.assertAlmostEqual(event[score], alone[score], places=9, msg=score)
            self.assertAlmostEqual(event[f"ema_{score}"], averaged[score], places=9, msg=f"averaged {score}")
        self.assertGreater(event["f1"], 0)

    def assert_answers(self, file, end):
        out = self.folder / "answers.json"
        said = json.loads(cli.must_run("eval", file, "--weights", end / "model.safetensors", "--predictions", out, "--json").stdout)
        answers = json.loads(out.read_text())
        asked = {question["id"]: (question["answers"][0]["text"], paragraph["context"])
                 for paragraph in json.loads((self.folder / "dev.json").read_text())["data"][0]["paragraphs"]
                 for question in paragraph["qas"]}
        self.assertEqual(answers.keys(), asked.keys())
        for name, answer in answers.items():
            self.assertIn(answer, asked[name][1])
        right = sum(answer.removeprefix("a ") == asked[name][0] for name, answer in answers.items())
        self.assertAlmostEqual(said["exact_match"], 100 * right / len(asked))
        self.assertGreaterEqual(said["f1"], said["exact_match"])
        self.assertEqual((said["samples"], said["targets"]), (len(asked), 2 * len(asked)), "a window each, starts and ends")
        event = cli.events(self.folder / "stages", "eval")[-1]
        for score in ("exact_match", "f1", "span", "loss"):
            self.assertAlmostEqual(event[score], said[score], places=9, msg=score)

    def test_questions_held_out_are_scored_in_their_own_contexts(self):
        root = questions(self.rng, 4)
        root["data"][0]["paragraphs"] = [{"context": one["context"], "qas": [one["qas"][0] | {"id": f"{number}-{copy}"}]}
                                         for number, one in enumerate(root["data"][0]["paragraphs"]) for copy in range(8)]
        (self.folder / "train.json").write_text(json.dumps(root), encoding="utf-8")
        self.save_model(transformers.BertForQuestionAnswering,
                        transformers.BertConfig(vocab_size=self.vocabulary, num_attention_heads=2, **SIZES))
        file = self.configuration("bert", {"name": "squad", "stride": 4, "validation": 0.25}, "qa",
                                  train={"lr": 5e-3, "steps": 100}, model={"dropout": 0.0})
        cli.must_run("train", file, "--run-dir", self.folder / "part")
        end = cli.events(self.folder / "part", "eval")[-1]
        self.assertEqual((end["samples"], end["exact_match"], end["f1"]), (2 * 8, 100, 100), "copies of questions that it has learned")

    def test_a_language_model_follows_a_loop_on_replicas(self):
        self.write_rows("train.jsonl", [{"text": sentence(self.rng, self.rng.randrange(3, 20))} for _ in range(ROWS)])
        self.write_rows("test.jsonl", [{"text": sentence(self.rng, 9)}])
        config = transformers.LlamaConfig(vocab_size=self.vocabulary, num_attention_heads=4, num_key_value_heads=2,
                                          tie_word_embeddings=True, rms_norm_eps=1e-5, **SIZES)
        model = self.save_model(transformers.LlamaForCausalLM, config)
        texts = [json.loads(line)["text"] for line in (self.folder / "train.jsonl").read_text().splitlines()]
        with EXACT:
            train_loop(model, batch_of(self.tokenizer, texts=texts), STEPS, lr=1e-3)
        file = self.configuration("llama", {"name": "jsonl", "max_length": 64, "pack": "documents"}, "lm", replicas={"local": 2}, pipeline={"stages": 2, "chunks": 2})
        self.assert_equals_loop(self.train(file, "replicas"), model)

    def test_words_with_labels_are_scored_as_entities(self):
        rows = [[self.rng.choice(WORDS) for _ in range(6)] for _ in range(ROWS)]
        named = [{"text": words, "label": ["B-ANIMAL" if word in ("herons", "fish") else "O" for word in words]} for words in rows]
        for name in ("train.jsonl", "test.jsonl"):
            self.write_rows(name, named)
        self.save_model(transformers.BertForTokenClassification,
                        transformers.BertConfig(vocab_size=self.vocabulary, num_attention_heads=2, num_labels=2, **SIZES))
        file = self.configuration("bert", {"name": "jsonl"}, "tokens", train={"lr": 1e-2})
        end = self.train(file, "words")
        saved = json.loads((end / "config.json").read_text())
        self.assertEqual(saved["id2label"], {"0": "B-ANIMAL", "1": "O"})
        self.assertEqual(saved["label2id"], {"B-ANIMAL": 0, "O": 1})
        last = cli.events(self.folder / "words", "eval")[-1]
        self.assertEqual((last["f1"], last["top1"]), (100, 100))

    def test_loss_and_gradients_do_not_depend_on_logits_without_a_target(self):
        """`step --out` has all logits, `train` only those of masked tokens: with the same loss and gradients."""
        rows = [{"text": sentence(self.rng, self.rng.randrange(3, 20))} for _ in range(3 * ROWS)]
        for name in ("train.jsonl", "test.jsonl"):
            self.write_rows(name, rows)
        self.save_model(transformers.BertForMaskedLM,
                        transformers.BertConfig(vocab_size=self.vocabulary, num_attention_heads=2, **SIZES))
        for stages, recompute in ((1, "none"), (2, "layer")):
            file = self.configuration("bert", {"name": "jsonl", "pack": "documents"}, "mlm", train={"optimizer": "sgd", "steps": 1, "clip_norm": 0.0},
                                      pipeline={"stages": stages, "chunks": 2, "recompute": recompute}, checkpoint={"every_steps": 1})
            out = self.folder / "step.safetensors"
            cli.must_run("step", file, "--out", out)
            wanted = load_file(out)
            self.assertEqual(wanted["logits"].dim(), 3)
            cli.must_run("train", file, "--run-dir", self.folder / f"masked{stages}")
            [step] = cli.events(self.folder / f"masked{stages}", "step")
            self.assertAlmostEqual(step["loss"], wanted["loss"].item(), places=12)
            trained = load_file(cli.checkpoints(self.folder / f"masked{stages}")[1] / "model.safetensors")
            for name, tensor in trained.items():
                torch.testing.assert_close(tensor, wanted[f"param/{name}"], rtol=1e-11, atol=1e-13, msg=name)

    def test_masked_and_packed_tokens_resume_in_the_middle_of_an_epoch(self):
        self.assert_resumes(transformers.BertForMaskedLM, {"pack": "documents"}, "mlm")

    def test_batches_by_length_resume_in_the_middle_of_an_epoch(self):
        self.assert_resumes(transformers.BertForSequenceClassification, {"by_length": True}, "classify")

    def assert_resumes(self, kind, data, task):
        rows = [{"text": sentence(self.rng, self.rng.randrange(3, 20)), "label": "xy"[i % 2]} for i in range(13 * ROWS + 3)]
        self.write_rows("train.jsonl", rows)
        self.write_rows("test.jsonl", rows[:5])
        self.save_model(kind, transformers.BertConfig(vocab_size=self.vocabulary, num_attention_heads=2, **SIZES))
        file = self.configuration("bert", {"name": "jsonl", **data}, task, model={"dropout": 0.1},
                                  pipeline={"stages": 2, "chunks": 2})
        whole = self.train(file, "whole")
        again = self.train(file, "again", "--resume", cli.checkpoints(self.folder / "whole")[10])
        for name in ("model.safetensors", "optimizer.safetensors"):
            ours, wanted = load_file(again / name), load_file(whole / name)
            self.assertEqual(ours.keys(), wanted.keys())
            for tensor in wanted:
                self.assertTrue(torch.equal(ours[tensor], wanted[tensor]), tensor)

    def test_cached_features_keep_the_padding(self):
        rows = [{"text": sentence(self.rng, 40 if i % 8 == 0 else 3), "label": "xy"[i % 2]} for i in range(5 * ROWS)]
        self.write_rows("train.jsonl", rows)
        self.write_rows("test.jsonl", rows[:ROWS])
        self.save_model(transformers.BertForSequenceClassification,
                        transformers.BertConfig(vocab_size=self.vocabulary, num_attention_heads=2, **SIZES))
        file = self.configuration("bert", {"name": "jsonl"}, "classify", train={"deterministic": False},
                                  freeze={"policy": "schedule", "schedule": ["1: 1", "3: 2"]})
        losses = {}
        for pad in ("max", "longest"):
            for cache in ("off", "memory"):
                run = f"{pad}-{cache}"
                self.train(file, run, *cli.options(freeze={"cache": cache}, train={"eval_every_steps": 5}, data={"pad": pad}))
                losses[run] = cli.column(self.folder / run, "loss", "eval")
            last = cli.events(self.folder / f"{pad}-memory", "cache")[-1]
            self.assertEqual(last["misses"], 6 * ROWS, "rows of training and test samples grow with the frozen layers")
            self.assertGreater(last["hits"], 6 * ROWS)
        wanted = losses["max-off"]
        for run, found in losses.items():
            for one, other in zip(wanted, found, strict=True):
                self.assertAlmostEqual(one, other, places=12, msg=run)

    @long_tests.only("20 s")
    def test_times_are_measured_at_the_width_of_usual_batches(self):
        rows = [{"text": sentence(self.rng, 2 + i), "label": "xy"[i % 2]} for i in range(ROWS)]
        self.write_rows("train.jsonl", rows)
        self.write_rows("test.jsonl", rows)
        lengths = sorted(len(self.tokenizer.encode(row["text"]).ids) for row in rows)
        self.save_model(transformers.BertForSequenceClassification,
                        transformers.BertConfig(vocab_size=self.vocabulary, num_attention_heads=2, **SIZES))
        file = self.configuration("bert", {"name": "jsonl", "by_length": True}, "classify")
        of_batches = {ROWS: lengths[-1:], ROWS // 2: [lengths[-1], lengths[ROWS // 2 - 1]]}
        for batch, widths in of_batches.items():
            usual = math.ceil(sum(widths) / len(widths) / 8) * 8
            for pad, wanted in (("longest", usual), ("max", None)):
                out = self.folder / "profile.json"
                cli.must_run("profile", file, "--out", out,
                             *cli.options(train={"global_batch": batch, "steps": 2}, data={"pad": pad}))
                found = json.loads(out.read_text())["fingerprint"]
                self.assertEqual((found["context"], found.get("usual_tokens")), (LENGTH, wanted))
        cli.must_run("tune", file, "--profile", out, "--out", self.folder / "tuned.toml",
                     *cli.options(train={"global_batch": batch, "steps": 2}, data={"pad": pad}))

    def test_a_checkpoint_goes_on_only_with_its_own_config(self):
        self.write_rows("train.jsonl", [{"text": sentence(self.rng, 5), "label": "xy"[i % 2]} for i in range(ROWS)])
        self.write_rows("test.jsonl", [{"text": "a river", "label": "x"}])
        model = self.save_model(transformers.BertForSequenceClassification,
                                transformers.BertConfig(vocab_size=self.vocabulary, num_attention_heads=2, **SIZES))
        file = self.configuration("bert", {"name": "jsonl"}, "classify")
        end = self.train(file, "run")
        model.config.update({"layer_norm_eps": 1e-3})
        model.config.save_pretrained(self.folder / "start")
        longer = cli.options(train={"steps": STEPS + 1})
        self.assertIn("config.json has epsilon of norms = 1e-12, but the model has 0.001",
                      cli.error_of(cli.run("train", file, "--resume", end, *longer)))
        loss = cli.events(self.folder / "run", "eval")[-1]["loss"]
        for source in (("--checkpoint", end), (file, "--weights", end)):
            self.assertAlmostEqual(json.loads(cli.must_run("eval", *source, "--json").stdout)["loss"], loss, places=12)


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    unittest.main()
