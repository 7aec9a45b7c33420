#!/usr/bin/env python3
"""train.reproducible = "layout": runs in random layouts end with the same bits, step by step.

    layouts_test.py [unittest options]        SLUICE_BINARY names the binary; LAYOUTS: random layouts of each model

A layout: stages, virtual stages, schedule, partition, recomputation, replicas, processes, their shares, size of buckets,
changes of plan in mid-run, and kills with a resume in another layout. The first run of each model is the reference: one device.
"""

import json
import os
import pathlib
import random
import tempfile
import unittest

import long_tests
import sluice_cli as cli

try:
    import torch
    import transformers
    from text_case import make_tokenizer, questions
except ImportError:
    torch = None

MICRO_BATCH, BATCH, SAMPLES = 4, 24, 76  # 6 micro-batches in a step, the last of each epoch has 1; 4 steps an epoch
STEPS = 60 if long_tests.RUN else 21
LAYOUTS = int(os.environ.get("LAYOUTS", "34" if long_tests.RUN else "1"))
SCHEDULES = ("gpipe", "1f1b", "eager-1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-h2", "zb-v", "dualpipe-v")
VIRTUAL = ("interleaved", "looped-bfs", "zb-v", "dualpipe-v")


def shapes(**model):
    return {"model": {"image_size": 16, **model}, "data": {"name": "shapes", "samples": SAMPLES}}


class Layouts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))

    def configuration(self, name, tables, **train):
        tables = {table: dict(values) for table, values in tables.items()}
        tables["device"] = {"list": "cpu", "threads": 1}
        tables["train"] = {"steps": STEPS, "global_batch": BATCH, "micro_batch": MICRO_BATCH, "eval_batch": 16,
                           "eval_every_steps": 10, "optimizer": "adamw", "lr": 2e-3, "clip_norm": 1.0, "seed": 5,
                           "reproducible": "layout"} | train
        tables["log"] = {"digest_every": 1, "tensorboard": False}
        tables["checkpoint"] = {"every_steps": 5, "keep": 100}
        return cli.write_config(self.folder / f"{name}.toml", **tables)

    def draw(self, rng, layers, changes):
        """A layout: [(processes, options)], one for each part of the run; each part but the last is killed."""
        parts = []
        for _ in range(1 if rng.random() < 0.7 else 2):
            schedule = rng.choice(SCHEDULES)
            virtual = 2 if schedule in VIRTUAL else 1
            stages = rng.randint(1, min(4, layers // virtual))
            pipeline = {"stages": stages, "schedule": schedule, "recompute": rng.choice(["none", "none", "layer"])}
            if rng.random() < 0.5:
                cuts = sorted(rng.sample(range(1, layers), stages * virtual - 1))
                pipeline["partition"] = [b - a for a, b in zip([0, *cuts], [*cuts, layers])]
            elif changes and rng.random() < 0.4 and schedule == "1f1b":
                pipeline["changes"] = [f"{rng.randint(2, 9)}: stages = {rng.randint(1, min(4, layers))}"]
            most = max(1, 8 // stages)
            replicas = rng.randint(1, min(3, most))
            processes = rng.randint(1, min(4, max(1, most // replicas)))
            of_replicas, freeze = {"local": replicas, "bucket_mb": rng.choice([0.01, 25])}, {}
            if rng.random() < 0.3:
                of_replicas["shares"] = [rng.randint(1, 3) for _ in range(processes * replicas)]
                freeze["replicas"] = False  # a list of shares fixes their number
            parts.append((processes, cli.options(pipeline=pipeline, replicas=of_replicas, freeze=freeze)))
        return parts

    def run_layout(self, config, run, parts, rng):
        """Runs it; None if the layout is refused (a schedule that needs more micro-batches)."""
        for number, (processes, options) in enumerate(parts):
            resume = ["--resume", "auto"] if number > 0 else []
            at = {} if number + 1 == len(parts) else {"SLUICE_KILL_AT": f"{rng.choice(['gradients-summed', 'weights-updated'])}:{rng.randint(7, 15)}"}
            victim = rng.randrange(processes)
            done = cli.finish_all(cli.start_ranks(processes, "train", config, "--run-dir", run, *options, *resume,
                                                  environments_of={victim: at})
                                  if processes > 1 else
                                  [cli.start("train", config, "--run-dir", run, *options, *resume, env=os.environ | at)])
            if 2 in [process.returncode for process in done]:
                self.assertRegex(cli.error_of(done[0]), "micro-batch|chunks|layers", done[0].stderr)
                return None
            if not at:
                self.assertEqual([process.returncode for process in done], [0] * processes, done[0].stderr[-3000:])
            else:
                self.assertIn(-9, [process.returncode for process in done])
        return run

    def assert_same_in_all(self, name, config, layers, changes=True):
        reference = self.folder / f"{name}-reference"
        cli.must_run("train", config, "--run-dir", reference)
        self.assertEqual(len(cli.events(reference, "digest")), STEPS)
        evaluations = [(event["loss"], event["samples"]) for event in cli.events(reference, "eval")]
        losses = {event["step"]: event["loss"] for event in cli.events(reference, "step")}
        rng = random.Random(f"{name} {os.environ.get('LAYOUT_SEED', 1)}")
        ran = refused = 0
        while ran < LAYOUTS:
            parts = self.draw(rng, layers, changes)
            run = self.run_layout(config, self.folder / f"{name}-{ran}-{refused}", parts, rng)
            if run is None:
                refused += 1
                self.assertLess(refused, 3 * LAYOUTS + 5, "too many refused layouts")
                continue
            ran += 1
            with self.subTest(model=name, layout=parts):
                compared = cli.run("compare", reference, run, "--json")
                self.assertEqual(compared.returncode, 0, compared.stdout + compared.stderr)
                # A kill may take the last lines with it that rank 0 had not written.
                self.assertGreaterEqual(json.loads(compared.stdout)["steps"], STEPS - len(parts) + 1)
                self.assertEqual([(event["loss"], event["samples"]) for event in cli.events(run, "eval")], evaluations)
                for event in cli.events(run, "step"):
                    self.assertEqual(event["loss"], losses[event["step"]], event["step"])
                ends = [json.loads(cli.must_run("digest", path, "--json").stdout) for path in (reference, run)]
                self.assertEqual(ends[0], ends[1])

    def test_digests_of_layers_name_the_first_difference(self):
        config = self.configuration("layers", shapes(name="resnet8"), optimizer="momentum", lr=0.05)
        common = ["train", config, *cli.options(train={"steps": 3}, log={"digest_layers": True})]
        others = {"same": cli.options(pipeline={"stages": 2}), "rate": cli.options(train={"lr": 0.0500001}),
                  "seed": cli.options(train={"seed": 6}), "clip": cli.options(train={"clip_norm": 0.999999})}
        found = {}
        cli.must_run(*common, "--run-dir", self.folder / "one")
        for name, options in others.items():
            cli.must_run(*common, *options, "--run-dir", self.folder / name)
            done = cli.run("compare", self.folder / "one", self.folder / name, "--json")
            found[name] = json.loads(done.stdout)["first_difference"]
            self.assertEqual(done.returncode, 0 if name == "same" else 1, done.stderr)
        self.assertIsNone(found["same"])
        self.assertEqual(found["rate"], {"step": 1, "equal_until": 0, "what": "update", "name": "conv1.weight"})
        self.assertEqual(found["seed"], {"step": 1, "equal_until": 0, "what": "forward", "name": "conv1", "micro_batch": 0})
        self.assertEqual(found["clip"]["what"], "update")
        text = cli.run("compare", self.folder / "one", self.folder / "seed").stdout
        self.assertEqual(text, "first difference: forward of conv1, micro-batch 0, in step 1\n"
                               "train.seed: 5 in the first run, 6 in the second\n")
        # Both directories say what was set; a layout is no reason.
        self.assertEqual(json.loads(cli.run("compare", self.folder / "clip", self.folder / "rate", "--json").stdout)["settings"],
                         {"train.lr": ["0.05", "0.0500001"], "train.clip_norm": ["0.999999", "1.0"]})
        refused = cli.run("compare", self.folder / "one", self.folder)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("is not a run directory", cli.error_of(refused))

    def test_an_early_end_has_a_digest_too(self):
        config = self.configuration("early", shapes(name="resnet8"), optimizer="momentum", lr=1e-9, stop_patience=1)
        cli.must_run("train", config, *cli.options(log={"digest_every": 1000}, train={"eval_every_steps": 2}), "--run-dir", self.folder / "early")
        digests = cli.events(self.folder / "early", "digest")
        self.assertEqual(len(digests), 1)
        self.assertLess(digests[0]["step"], STEPS)
        said = json.loads(cli.must_run("digest", self.folder / "early", "--json").stdout)
        self.assertEqual(said, {name: digests[0][name] for name in ("step", "weights", "optimizer")})

    def test_a_resume_elsewhere_warns(self):
        config = self.configuration("elsewhere", shapes(name="resnet8"), optimizer="momentum", lr=0.05)
        run = self.folder / "elsewhere"
        cli.must_run("train", config, *cli.options(train={"steps": 5}), "--run-dir", run)
        state = cli.checkpoints(run)[5] / "state.json"
        self.assertIn("LibTorch", json.loads(state.read_text())["arithmetic"])
        warned = cli.must_run("train", config, *cli.options(train={"steps": 6}, device={"threads": 2}), "--run-dir", run, "--resume", "auto").stderr
        self.assertIn("device.threads", warned)

    def test_resnet(self):
        self.assert_same_in_all("resnet8", self.configuration("resnet8", shapes(name="resnet8"), optimizer="momentum", lr=0.05), 5)

    def test_resnet_deferred(self):
        tables = shapes(name="resnet8") | {"pipeline": {"batch_norm": "deferred"}}
        self.assert_same_in_all("deferred", self.configuration("deferred", tables, optimizer="rmsprop", clip_norm=0.0), 5)

    @long_tests.only("10 s")
    def test_resnet_in_float64(self):
        config = self.configuration("fp64", shapes(name="resnet8"), precision="fp64", optimizer="momentum", lr=0.05, clip_norm=0.5)
        self.assert_same_in_all("fp64", config, 5)

    def test_vit_with_dropout(self):
        self.assert_same_in_all("vit", self.configuration("vit", shapes(name="vit", size="nano", patch_size=4, dropout=0.1), ema_decay=0.9), 6)

    @long_tests.only("12 s")
    def test_vit_in_bfloat16(self):
        config = self.configuration("bf16", shapes(name="vit", size="nano", patch_size=4, dropout=0.1) | {
            "replicas": {"bucket_type": "bf16"}}, precision="bf16", optimizer="lamb")
        self.assert_same_in_all("bf16", config, 6)

    def test_gpt2_with_tied_weights(self):
        (self.folder / "letters.txt").write_text("".join(random.Random(3).choices("abcdefgh \n", k=6000)), encoding="utf-8")
        tables = {"model": {"name": "gpt2", "size": "nano", "dropout": 0.1},
                  "data": {"name": "text", "path": str(self.folder / "letters.txt"), "limit": SAMPLES, "max_length": 24}}
        self.assert_same_in_all("gpt2", self.configuration("gpt2", tables), 4)

    @long_tests.only("8 s")
    def test_rows_that_are_no_multiple_of_a_cache_line(self):
        self.assert_same_in_all("mlp", self.configuration("mlp", shapes(name="mlp", image_size=10), micro_batch=3), 3)

    def bert_tables(self):
        vocabulary = make_tokenizer(self.folder / "tokenizer.json")
        rng = random.Random(1)
        for name, count in (("train", SAMPLES), ("dev", 13)):
            (self.folder / f"{name}.json").write_text(json.dumps(questions(rng, count)), encoding="utf-8")
        torch.manual_seed(1)
        transformers.BertForQuestionAnswering(transformers.BertConfig(
            vocab_size=vocabulary, hidden_size=32, num_hidden_layers=3, num_attention_heads=2, intermediate_size=64,
            max_position_embeddings=64)).save_pretrained(self.folder / "bert")
        return {"model": {"name": "bert", "config": str(self.folder / "bert/config.json"), "weights": str(self.folder / "bert"),
                          "task": "qa", "dropout": 0.1},
                "data": {"name": "squad", "path": str(self.folder), "tokenizer": str(self.folder / "tokenizer.json"),
                         "max_length": 24, "stride": 4}}

    @unittest.skipUnless(torch, "needs torch, tokenizers and transformers")
    def test_bert_with_padding(self):
        self.assert_same_in_all("bert", self.configuration("bert", self.bert_tables()), 5)

    @long_tests.only("12 s")
    @unittest.skipUnless(torch, "needs torch, tokenizers and transformers")
    def test_adapters_without_a_trained_parameter_in_the_first_stage(self):
        tables = self.bert_tables()
        tables["model"] |= {"lora_rank": 2}
        self.assert_same_in_all("lora", self.configuration("lora", tables, lr=1e-2), 5)

    @unittest.skipUnless(torch, "needs torch")
    def test_exported_model(self):
        import export_model
        torch.manual_seed(1)
        module = torch.nn.Sequential(
            *[torch.nn.Sequential(torch.nn.Conv2d(3 if i == 0 else 16, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
                                  torch.nn.Dropout(0.1)) for i in range(3)],
            torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(16, 10))
        export_model.export_to(self.folder / "m.pt2", module, {"input": torch.randn(3, 3, 16, 16)})
        tables = shapes(name="pt2", file=str(self.folder / "m.pt2"))
        self.assert_same_in_all("pt2", self.configuration("pt2", tables, optimizer="adam"), 4)

    @unittest.skipUnless(torch, "needs torch")
    def test_an_exported_model_that_changes_a_buffer_is_refused(self):
        import export_model

        class Counts(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(3 * 16 * 16, 10)
                self.register_buffer("seen", torch.zeros(1))

            def forward(self, input):
                self.seen.add_(input.mean())
                return self.linear(input.flatten(1))

        export_model.export_to(self.folder / "counts.pt2", Counts(), {"input": torch.randn(3, 3, 16, 16)})
        config = self.configuration("counts", shapes(name="pt2", file=str(self.folder / "counts.pt2")))
        done = cli.run("train", config, "--run-dir", self.folder / "counts")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("changes the buffer seen in training", cli.error_of(done))
        cli.must_run("train", config, *cli.options(train={"reproducible": "off", "steps": 2}), "--run-dir", self.folder / "counts-off")

    def test_frozen_layers(self):
        tables = shapes(name="vit", size="nano", patch_size=4, dropout=0.1) | {
            "freeze": {"policy": "schedule", "schedule": ["1: 2", "3: 3"]}}
        self.assert_same_in_all("frozen", self.configuration("frozen", tables), 6, changes=False)

    @long_tests.only("6 s")
    def test_frozen_layers_with_a_cache(self):
        tables = shapes(name="resnet8") | {
            "freeze": {"policy": "schedule", "schedule": ["1: 2", "3: 3"], "cache": "memory", "cache_bytes": 150_000}}
        self.assert_same_in_all("cache", self.configuration("cache", tables, optimizer="momentum", lr=0.05), 5, changes=False)


if __name__ == "__main__":
    unittest.main()
