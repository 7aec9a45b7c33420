#!/usr/bin/env python3
"""Language models from outside: `sluice step` on tokens, and what is refused. Exits 77 without safetensors."""

import json
import math
import pathlib
import sys
import tempfile
import unittest

import torch

import long_tests
import sluice_cli as cli

try:
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")
    sys.exit(77)

CONTEXT = 12


class TokensTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def configuration(self, stages=1, chunks=1, model=None, data=None):
        return cli.write_config(
            self.folder / "tokens.toml", device={"list": "cpu"},
            model={"name": "gpt2", "size": "nano", "context": CONTEXT, **(model or {})},
            data={"name": "toy", "samples": 64, **(data or {})},
            train={"precision": "fp64", "global_batch": 8, "optimizer": "sgd"},
            pipeline={"stages": stages, "chunks": chunks})

    def step(self, config, *arguments):
        out = self.folder / "out.safetensors"
        cli.must_run("step", config, "--out", out, *arguments)
        return load_file(out)

    def assert_refused(self, done, code, *parts):
        self.assertEqual(done.returncode, code, done.stderr)
        for part in parts:
            self.assertIn(str(part), cli.error_of(done))

    def write_batch(self, inputs, targets):
        save_file({"inputs": inputs, "targets": targets.clone()}, self.folder / "batch.safetensors")
        return self.folder / "batch.safetensors"

    def test_a_step_is_the_same_however_the_blocks_are_cut(self):
        batch = self.write_batch(torch.randint(0, 256, (7, CONTEXT - 2)),
                                 torch.randint(0, 256, (7, CONTEXT - 2)).masked_fill(torch.rand(7, CONTEXT - 2) < 0.3, -100))
        whole = self.step(self.configuration(), "--batch", batch)
        self.assertEqual(tuple(whole["logits"].shape), (7, CONTEXT - 2, 256))
        self.assertIn("grad/transformer.h.1.attn.c_attn.weight", whole)
        self.assertEqual(tuple(whole["grad/transformer.h.1.attn.c_attn.weight"].shape), (32, 96))
        for stages, chunks in long_tests.some(((6, 4),), ((2, 3), (6, 4)), "the most stages"):
            cut = self.step(self.configuration(stages, chunks), "--batch", batch)
            self.assertEqual(cut.keys(), whole.keys())
            for name, expected in whole.items():
                error = (cut[name] - expected).norm().item()
                self.assertLessEqual(error, 1e-10 * max(expected.norm().item(), 1e-3), f"{name} at {stages} stages")

    def test_the_perplexity_is_beside_the_loss(self):
        run_dir = self.folder / "run"
        done = cli.must_run("train", self.configuration(), "--run-dir", run_dir, "--set", "train.steps=2", "--set", "log.every=1")
        evaluation, summary = cli.events(run_dir, "eval")[-1], cli.events(run_dir, "summary")[-1]
        self.assertAlmostEqual(evaluation["perplexity"], math.exp(evaluation["loss"]), places=9)
        self.assertEqual(summary["perplexity"], evaluation["perplexity"])
        self.assertRegex(done.stderr, r" step 2/2  loss \d+\.\d{4}  lr 0\.01  \d+(\.\d)? tokens/s  ETA \(without evaluations\) 0:00")
        self.assertIn(f"validation loss {evaluation['loss']:.4f}, perplexity {evaluation['perplexity']:.2f}, top-1 ", done.stderr)
        self.assertIn(f"  {evaluation['perplexity']:.2f}\n", cli.must_run("report", run_dir).stdout)
        again = json.loads(cli.must_run("eval", "--checkpoint", run_dir, "--json").stdout)
        self.assertAlmostEqual(again["perplexity"], evaluation["perplexity"], places=9)
        smooth = self.folder / "smooth"
        cli.must_run("train", self.configuration(), "--run-dir", smooth, "--set", "train.steps=1", "--set", "train.label_smoothing=0.1")
        self.assertNotIn("perplexity", cli.events(smooth, "eval")[-1], "the loss is no plain cross-entropy")

    def test_data_sets_of_tokens_give_the_first_batch(self):
        text = self.folder / "text.txt"
        text.write_bytes(bytes(range(256)) * 8)
        for data in ({}, {"name": "text", "path": str(text)}):
            out = self.step(self.configuration(data=data))
            self.assertEqual(tuple(out["logits"].shape), (8, CONTEXT, 256))

    def test_models_and_data_of_different_kinds_are_2(self):
        refused = (
                ({"name": "vit", "context": 0}, {}, 'model.name = "vit" takes images, but data set toy has tokens'),
                ({}, {"name": "shapes"}, 'model.name = "gpt2" takes tokens, but data set shapes has images'),
                ({"vocabulary": 63}, {}, "model.vocabulary = 63"),
                ({"classes": 10}, {}, "model.classes = 10 does not apply to gpt2"),
                ({"image_size": 32}, {}, "model.image_size = 32 does not apply to gpt2"),
                ({"name": "mlp"}, {"name": "shapes"}, f"model.context={CONTEXT} is not supported by mlp"),
                ({}, {"name": "text"}, "data.path is empty"))
        for model, data, said in long_tests.some(refused[:2], refused, "keys that have no place"):
            done = cli.run("step", self.configuration(model=model, data=data), "--out", self.folder / "out")
            with self.subTest(said):
                self.assert_refused(done, 2, said)

    def test_a_text_that_is_too_short_is_3(self):
        text = self.folder / "text.txt"
        text.write_text("too short")
        done = cli.run("step", self.configuration(data={"name": "text", "path": str(text)}), "--out", self.folder / "out")
        self.assert_refused(done, 3, text, f"model.context = {CONTEXT} needs {10 * (CONTEXT + 1)}")

    def test_a_batch_that_does_not_fit_is_3(self):
        good = torch.zeros(2, CONTEXT, dtype=torch.long)
        wrong = (
                (good + 256, good, "'inputs' holds 256, but the model has 256 tokens, 0 to 255"),
                (good, good - 1, "'targets' holds -1, but the model has 256 tokens, 0 to 255"),
                (good, good - 100, "every entry of 'targets' is -100"),
                (good, good[:, 1:].contiguous(), "'targets' is [2, 11], but the inputs are [2, 12]"),
                (good[0], good[0], f"the model needs [n, T] with n > 0 and T from 1 to its context, {CONTEXT}"),
                (good.repeat(1, 2), good.repeat(1, 2), f"its context, {CONTEXT}"),
                (good.float(), good, "'inputs' is Float, but tokens are integers"))
        for inputs, targets, said in long_tests.some(wrong[::3], wrong, "one of three"):
            batch = self.write_batch(inputs, targets)
            done = cli.run("step", self.configuration(), "--batch", batch, "--out", self.folder / "out")
            with self.subTest(said):
                self.assert_refused(done, 3, batch, said)

    def test_training_keeps_tied_parameters_one(self):
        states = []
        for stages in (1, 3):
            run = self.folder / f"run{stages}"
            cli.must_run("train", self.configuration(stages, chunks=2), "--set", "train.steps=20", "--set", "train.lr=0.5",
                         "--set", "train.clip_norm=1.0", "--run-dir", run)
            steps = cli.events(run, "step")
            self.assertLess(steps[-1]["loss"], steps[0]["loss"])
            self.assertGreater(steps[0]["gradient_norm"], 0)
            states.append(load_file(run / "checkpoints" / "step-20" / "model.safetensors"))
        self.assertNotIn("lm_head.weight", states[0])
        self.assertEqual(states[0].keys(), states[1].keys())
        for name, value in states[0].items():
            self.assertLess((value - states[1][name]).norm().item(), 1e-10 * (1 + value.norm().item()), name)


if __name__ == "__main__":
    unittest.main()
