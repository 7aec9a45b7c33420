#!/usr/bin/env python3
"""scripts/run_elastic_pipe.sh: the arguments of the notes, and what `sluice train` gets of them."""

import math
import tomllib
import unittest

from launch_test import LaunchCase
from script_copy import REPOSITORY

NODE = ("8", "2", "0", "192.168.11.2", "22222")
NOTE = (*NODE, "1", "ib0", "0.03", "320", "cifar10", "./data/cifar10/", "8", "1")  # mission M1
SCRIPT = "run_elastic_pipe.sh"


class ArgumentsTest(LaunchCase):
    def run_elastic(self, *arguments, **more):
        return self.run_script(SCRIPT, *arguments, **more)

    def sets_of(self, *arguments, **more):
        done = self.run_elastic(*arguments, **more)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return self.sets()

    def freezing(self, *arguments, **more):
        """What is set of [freeze]."""
        sets = self.sets_of(*arguments, **more)
        return {key.removeprefix("freeze."): value for key, value in sets.items() if key.startswith("freeze.")}

    def test_the_line_of_the_notes(self):
        expected = {"log.lines": "full", "train.lr": "0.03", "data.name": "cifar10", "data.path": "/usr/./data/cifar10/",
                    "pipeline.stages": "8", "replicas.local": "1", "freeze.policy": "linear", "train.global_batch": "640"}
        self.assertEqual(self.sets_of(*NOTE, cwd="/usr"), expected)
        seen = self.seen()
        self.assertEqual(seen["argv"][:2], ["train", "configs/elastic_pipe.toml"])
        self.assertEqual(seen["argv"][-2:], ["--if-name", "ib0"])
        self.assertEqual(
            seen["env"],
            {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "192.168.11.2",
             "MASTER_PORT": "22222", "NCCL_IB_DISABLE": "0", "NCCL_SOCKET_IFNAME": "ib0", "GLOO_SOCKET_IFNAME": "ib0",
             "GOMP_SPINCOUNT": "3000"})

    def test_the_line_for_four_devices_started_by_sh(self):
        line = ("4", "1", "0", "192.168.1.73", "11111", "0", "wlx9cefd5fb3821", "0.03", "60", "cifar10", "./data/cifar10/", "4", "1")
        done = self.copy.run_by("sh", SCRIPT, *line, cwd=self.copy.root / "scripts", **self.variables(None, {}))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        sets = self.sets()
        self.assertEqual([sets[key] for key in ("pipeline.stages", "replicas.local", "train.global_batch")], ["4", "1", "60"])
        self.assertEqual(sets["data.path"], f"{self.copy.root}/scripts/./data/cifar10/")
        self.assertEqual(self.seen()["env"]["NCCL_IB_DISABLE"], "1")
        self.assertNotIn("WORLD_SIZE", self.seen()["env"])

    def test_batch_counts_per_pipeline_of_all_nodes(self):
        for devices, nodes, length, replicas, global_batch in ((8, 2, 8, 1, 640), (8, 2, 4, 2, 1280), (8, 3, 1, 8, 7680), (2, 1, 2, 1, 320)):
            with self.subTest(devices=devices, length=length):
                sets = self.sets_of(devices, nodes, *NODE[2:], "1", "", "0.03", "320", "cifar10", "/d", length)
                self.assertEqual((sets["replicas.local"], sets["train.global_batch"]), (str(replicas), str(global_batch)))

    def test_the_batches_an_epoch_of_the_notes(self):
        for batch, batches in ((64, 391), (320, 79)):
            sets = self.sets_of(*NODE, "1", "ib0", "0.03", batch, "cifar10", "/d", "8")
            self.assertEqual(math.ceil(50_000 / int(sets["train.global_batch"])), batches)

    def test_missing_arguments_stay_as_configured(self):
        self.assertEqual(self.sets_of(*NODE, FAKE_STAGES="4"), {"log.lines": "full", "replicas.local": "2"})
        self.assertEqual(self.sets_of(*NODE, "0", FAKE_STAGES="8"), {"log.lines": "full", "replicas.local": "1"})
        self.assertEqual(self.sets_of(*NOTE[:9], "--set", "pipeline.stages=4"),
                         {"log.lines": "full", "train.lr": "0.03", "replicas.local": "2", "train.global_batch": "1280", "pipeline.stages": "4"})
        self.assertEqual(self.freezing(*NOTE[:12]), {})

    def test_a_set_of_the_user_wins(self):
        sets = self.sets_of(*NOTE, "--set", "replicas.local=3", "--set", "freeze.policy=none", "--set", "data.name=shapes")
        self.assertEqual([sets[key] for key in ("replicas.local", "train.global_batch", "freeze.policy", "data.name")],
                         ["3", "1920", "none", "shapes"])

    def test_freeze_keeps_the_policy_of_the_configuration(self):
        self.assertEqual(self.freezing(*NOTE[:12], "1", FAKE_POLICY="schedule"), {})
        self.assertEqual(self.freezing(*NOTE[:12], "1", "--set", "freeze.policy=schedule")["policy"], "schedule")
        self.assertEqual(self.freezing(*NOTE[:12], "0", FAKE_POLICY="schedule"), {"policy": "none"})

    def test_a_share_is_alpha_as_in_later_notes(self):
        self.assertEqual(self.freezing(*NOTE[:12], "0.33", "freeze", "auto_pipe", "auto_dp", "no_cache"),
                         {"policy": "linear", "alpha": "0.33", "elastic": "true", "replicas": "true", "cache": "off"})
        self.assertEqual(self.freezing(*NOTE[:12], ".5", "no_freeze"), {"policy": "none", "alpha": "0.5"})

    def test_a_switch_for_each_part(self):
        for words, expected in (
                (("no_auto_pipe",), {"policy": "linear", "elastic": "false"}),
                (("no_cache", "no_auto_dp", "auto_pipe"), {"policy": "linear", "elastic": "true", "replicas": "false", "cache": "off"}),
                (("cache",), {"policy": "linear", "cache": "auto"}),
                (("no_cache", "cache"), {"policy": "linear", "cache": "auto"}),
                (("no_freeze", "cache"), {"policy": "none"}),
                (("no_freeze",), {"policy": "none"}),
                (("no_freeze", "freeze"), {"policy": "linear"}),
                (("no_auto_dp", "auto_dp"), {"policy": "linear", "replicas": "true"})):
            with self.subTest(words=words):
                self.assertEqual(self.freezing(*NOTE, *words), expected)

    def test_a_cache_needs_views_where_images_are_cropped_or_flipped(self):
        for configured, views in (({}, None), ({"FAKE_CROP": "4"}, "2"), ({"FAKE_FLIP": "true"}, "2"),
                                  ({"FAKE_FLIP": "true", "FAKE_VIEWS": "5"}, None)):
            with self.subTest(configured=configured):
                self.assertEqual(self.sets_of(*NOTE, "cache", **configured).get("data.views"), views)
        self.assertNotIn("cache", self.freezing(*NOTE, "cache", FAKE_CACHE="disk"), "what is configured stays")
        self.assertNotIn("data.views", self.sets_of(*NOTE, "no_cache", FAKE_FLIP="true"))

    def test_texts_train_bert_that_freezes(self):
        done = self.run_elastic(*NOTE[:9], "squad", "/d", "4", "1", "cache")
        self.assertEqual((done.returncode, done.stderr, self.seen()["argv"][1]), (0, "", "configs/bert_squad.toml"))
        expected = {"log.lines": "full", "train.lr": "0.03", "pipeline.stages": "4", "pipeline.chunks": "auto", "freeze.policy": "linear",
                    "freeze.alpha": "0.3333333333333333", "data.name": "squad", "model.task": "qa", "data.path": "/d",
                    "replicas.local": "2", "freeze.cache": "auto", "train.global_batch": "1280"}
        self.assertEqual(self.sets(), expected)
        self.assertEqual(self.sets_of(*NOTE[:9], "sst2")["data.text_column"], "sentence")

    def test_the_interface(self):
        for name, options, variables, expected in (
                ("ib0", ("--if-name", "eth1"), {}, "eth1"), ("", (), {"SLUICE_IF_NAME": "eth2"}, "eth2"),
                ("ib0", (), {"SLUICE_IF_NAME": "eth2"}, "ib0"), ("", (), {}, None)):
            with self.subTest(name=name, options=options):
                self.assertEqual(self.run_elastic(*NODE, "0", name, *options, **variables).returncode, 0)
                self.assertEqual(self.seen()["env"].get("GLOO_SOCKET_IFNAME"), expected)

    def test_bad_arguments_start_nothing(self):
        cases = (
            (NODE[:4], "4 arguments"),
            (("0", *NODE[1:]), "NPROC = '0'"),
            ((*NODE[:2], "2", *NODE[3:]), "NODE_RANK = '2' is not a whole number from 0 to 1"),
            ((*NODE, "ib0"), "IB = 'ib0'"),
            ((*NODE, "1", "0.03", "320", "cifar10"), "IF_NAME = '0.03' is a number"),
            ((*NOTE[:7], "fast"), "LR = 'fast'"),
            ((*NOTE[:8], "1.5"), "BATCH = '1.5'"),
            ((*NOTE[:11], "0"), "PIPE_LEN = '0'"),
            ((*NOTE[:11], "3"), "NPROC = 8 is not a multiple of PIPE_LEN = 3 (pipeline.stages); change one of them"),
            ((*NOTE[:11], "16"), "NPROC = 8 is not a multiple of PIPE_LEN = 16"),
            ((*NODE, "--set", "pipeline.stages=5"), "NPROC = 8 is not a multiple of PIPE_LEN = 5"),
            ((*NOTE[:12], "2"), "FREEZE = '2' is neither 0 nor 1"),
            ((*NOTE, "autopipe"), "'autopipe' is not one of"),
        )
        for arguments, sentence in cases:
            with self.subTest(arguments=arguments):
                done = self.run_elastic(*arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(sentence, done.stderr.splitlines()[0])
        self.assertEqual(list(self.folder.iterdir()), [])


class ConfigurationTest(unittest.TestCase):
    def test_it_is_the_recipe_of_the_paper_on_the_model_of_pipe_ddp(self):
        ours, plain = (tomllib.loads((REPOSITORY / "configs" / name).read_text()) for name in ("elastic_pipe.toml", "pipe_ddp.toml"))
        for table in ("device", "model", "data", "replicas", "checkpoint", "log"):
            self.assertEqual(ours[table], plain[table])
        recipe = {key: ours["train"][key] for key in ("epochs", "optimizer", "momentum", "lr_schedule", "warmup_steps", "clip_norm")}
        self.assertEqual(recipe, {"epochs": 10, "optimizer": "momentum", "momentum": 0.9, "lr_schedule": "cosine", "warmup_steps": 2, "clip_norm": 1.0})
        self.assertEqual(ours["freeze"], {"policy": "linear", "alpha": 1 / 3})


if __name__ == "__main__":
    unittest.main()
