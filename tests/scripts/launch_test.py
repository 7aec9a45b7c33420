#!/usr/bin/env python3
"""scripts/run.sh, run_ddp.sh and run_single_gpu.sh: the arguments of the notes, and what `sluice train` gets of them."""

import contextlib
import json
import math
import os
import signal
import time
import tomllib
import unittest

from fake_sluice import SOURCE
from script_copy import REPOSITORY, ScriptCopy

NODE = ("1", "2", "0", "192.168.11.1", "11111")
NOTE = (*NODE, "1", "0.03", "256", "cifar10", "./data/cifar10/")  # mission M1


class LaunchCase(unittest.TestCase):
    """A copy of the scripts with the stand-in for sluice."""

    def setUp(self):
        self.copy = self.enterContext(ScriptCopy())
        self.copy.stand_in("scripts/bootstrap.sh", "exit 0\n")
        program = self.copy.root / "build/release/sluice"
        self.copy.stand_in(program, "")
        program.write_text(SOURCE, encoding="utf-8")
        self.folder = self.copy.bin.parent / "fake"
        self.folder.mkdir()

    def variables(self, plan, variables):
        return {"FAKE_DIR": str(self.folder), "FAKE_PLAN": json.dumps(plan or {}), **variables}

    def run_script(self, *command, plan=None, cwd=None, **variables):
        return self.copy.run(*command, cwd=cwd, **self.variables(plan, variables))

    def start_script(self, *command, plan=None, **variables):
        process = self.copy.start(*command, **self.variables(plan, variables))
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        """Nothing that a test has started outlives it."""
        if process.poll() is None:
            process.kill()
        for file in self.folder.rglob("*.json"):
            pid = json.loads(file.read_text())["pid"]
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/cwd") == str(self.copy.root):
                    os.kill(pid, signal.SIGKILL)
        process.communicate()

    def seen(self, rank=0):
        """What the stand-in of a rank was started with; waits until it was."""
        file = self.folder / f"{rank}.json"
        self.wait_for(file.exists, f"rank {rank}")
        return json.loads(file.read_text())

    def wait_for(self, condition, what, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, f"{what} did not come")
            time.sleep(0.02)

    def signals(self, rank=0):
        file = self.folder / f"{rank}.signals"
        return file.read_text().split() if file.exists() else []

    def sets(self, rank=0):
        """The last value of each --set, as sluice takes it."""
        argv = self.seen(rank)["argv"]
        return dict(value.split("=", 1) for name, value in zip(argv, argv[1:]) if name == "--set")


class ArgumentsTest(LaunchCase):
    def test_the_line_of_the_notes(self):
        done = self.run_script("run.sh", *NOTE, cwd="/usr")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        seen = self.seen()
        self.assertEqual(seen["argv"][:2], ["train", "configs/pipe_ddp.toml"])
        self.assertEqual(seen["cwd"], str(self.copy.root))
        self.assertEqual(
            self.sets(),
            {"log.lines": "full", "train.lr": "0.03", "data.name": "cifar10", "data.path": "/usr/./data/cifar10/",
             "train.global_batch": "512"})
        self.assertEqual(
            seen["env"],
            {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "192.168.11.1",
             "MASTER_PORT": "11111", "NCCL_IB_DISABLE": "0", "GOMP_SPINCOUNT": "3000"})

    def test_five_arguments_leave_the_recipe_and_infiniband_alone(self):
        self.assertEqual(self.run_script("run.sh", *NODE, NCCL_IB_DISABLE="7").returncode, 0)
        self.assertEqual(self.seen()["argv"], ["train", "configs/pipe_ddp.toml", "--set", "log.lines=full"])
        self.assertEqual(self.seen()["env"]["NCCL_IB_DISABLE"], "7")

    def test_the_argument_wins_over_the_environment(self):
        self.assertEqual(self.run_script("run.sh", *NODE, "0", NCCL_IB_DISABLE="0", RANK="9", WORLD_SIZE="99").returncode, 0)
        self.assertEqual(self.seen()["argv"], ["train", "configs/pipe_ddp.toml", "--set", "log.lines=full"])
        env = self.seen()["env"]
        self.assertEqual((env["NCCL_IB_DISABLE"], env["RANK"], env["WORLD_SIZE"]), ("1", "0", "2"))

    def test_any_number_of_trailing_arguments_may_be_missing(self):
        for count, keys in ((7, ["train.lr"]), (8, ["train.lr", "train.global_batch"]), (9, ["train.lr", "data.name", "train.global_batch"])):
            with self.subTest(count=count):
                self.assertEqual(self.run_script("run.sh", *NOTE[:count]).returncode, 0)
                self.assertEqual(list(self.sets()), ["log.lines", *keys])

    def test_one_process_has_no_world(self):
        variables = {"RANK": "3", "WORLD_SIZE": "4", "SLURM_PROCID": "3", "OMPI_COMM_WORLD_RANK": "3", "PMI_RANK": "3", "LOCAL_RANK": "1"}
        self.assertEqual(self.run_script("run.sh", "1", "1", "0", "localhost", "5000", **variables).returncode, 0)
        self.assertEqual(set(self.seen()["env"]), {"MASTER_ADDR", "MASTER_PORT", "GOMP_SPINCOUNT"})

    def test_batch_counts_per_replica_of_all_nodes(self):
        cases = (
            ("run.sh", ("1", "2"), "3", "192"),
            ("run.sh", ("2", "2"), "2", "256"),
            ("run_ddp.sh", ("4", "2"), "3", "256"),
            ("run_ddp.sh", ("1", "1"), "3", "32"),
        )
        for script, (nproc, nnodes), local, expected in cases:
            with self.subTest(script=script, nproc=nproc, local=local):
                arguments = (nproc, nnodes, "0", "h", "5000", "0", ".03", "032")
                self.assertEqual(self.run_script(script, *arguments, FAKE_LOCAL=local).returncode, 0)
                self.assertEqual(self.sets()["train.global_batch"], expected)
                self.assertEqual(self.sets()["train.lr"], "0.03")

    def test_replicas_local_may_come_from_a_set(self):
        self.assertEqual(self.run_script("run.sh", *NOTE, "--set", "replicas.local=4").returncode, 0)
        self.assertEqual(self.sets()["train.global_batch"], "2048")

    def test_the_batches_an_epoch_of_the_notes(self):
        for batch, batches in ((256, 98), (64, 391), (320, 79)):
            self.assertEqual(self.run_script("run.sh", *NODE, "1", "0.03", batch, "cifar10").returncode, 0)
            self.assertEqual(math.ceil(50_000 / int(self.sets()["train.global_batch"])), batches)
            self.assertIn(f"{batch} | {2 * batch} | {batches} |", (REPOSITORY / "docs/how-to/launch.md").read_text())

    def test_a_set_of_the_user_wins(self):
        self.assertEqual(self.run_script("run.sh", *NOTE, "--set", "train.lr=1", "--set=train.global_batch=7").returncode, 0)
        self.assertEqual((self.sets()["train.lr"], self.sets()["train.global_batch"]), ("1", "7"))

    def test_imagenet_is_an_image_folder(self):
        self.assertEqual(self.run_script("run.sh", *NOTE[:8], "imagenet", "/d").returncode, 0)
        self.assertEqual((self.sets()["data.name"], self.sets()["data.path"]), ("image_folder", "/d"))

    def test_texts_train_bert_in_the_shape_of_the_script(self):
        squad = {"data.name": "squad", "model.task": "qa", "data.path": "/d"}
        sst2 = {"data.name": "csv", "model.task": "classify", "data.text_column": "sentence", "data.label_column": "label", "data.path": "/d"}
        pipe = {"pipeline.stages": "2", "pipeline.chunks": "4", "train.global_batch": "512"}
        ddp = {"pipeline.stages": "1", "replicas.local": "1", "train.global_batch": "512"}
        for name, config, data in (("squad", "configs/bert_squad.toml", squad), ("sst2", "configs/bert_classify.toml", sst2)):
            for script, arguments, shape in (("run.sh", NOTE[:8], pipe), ("run_ddp.sh", NOTE[:8], ddp),
                                             ("run_single_gpu.sh", NOTE[6:8], ddp | {"train.global_batch": "256"})):
                with self.subTest(name=name, script=script):
                    done = self.run_script(script, *arguments, name, "/d")
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    self.assertEqual(self.seen()["argv"][1], config)
                    self.assertEqual(self.sets(), {"log.lines": "full", "train.lr": "0.03"} | data | shape)

    def test_texts_with_a_configuration_of_the_user(self):
        done = self.run_script("run.sh", *NOTE[:8], "squad", "/d", "--set", "model.task=", SLUICE_CONFIG="/mine.toml", FAKE_MODEL="bert")
        self.assertEqual((done.returncode, done.stderr, self.seen()["argv"][1]), (0, "", "/mine.toml"))
        self.assertEqual((self.sets()["data.name"], self.sets()["model.task"], "pipeline.stages" in self.sets()), ("squad", "", False))
        (self.folder / "0.json").unlink()
        for name in ("squad", "sst2"):
            done = self.run_script("run_ddp.sh", *NOTE[:8], name, SLUICE_CONFIG="/mine.toml", FAKE_MODEL="resnet8")
            self.assertEqual((done.returncode, (self.folder / "0.json").exists()), (2, False))
            self.assertIn(f"DATASET = {name} needs a text model, but /mine.toml has model.name = \"resnet8\"; set SLUICE_CONFIG", done.stderr)

    def test_nothing_is_expanded(self):
        folder = "my $HOME/*/`date`; \"data\" 'x'"
        self.assertEqual(self.run_script("run.sh", *NOTE[:9], folder, "--set", "a=$(b) c", cwd="/usr").returncode, 0)
        self.assertEqual((self.sets()["data.path"], self.sets()["a"]), ("/usr/" + folder, "$(b) c"))

    def test_the_interface(self):
        for options, variables, expected in (
            (("--if-name", "ib0"), {"SLUICE_IF_NAME": "eth1"}, "ib0"), (("--if-name=ib0",), {}, "ib0"), ((), {"SLUICE_IF_NAME": "eth1"}, "eth1")):
            with self.subTest(options=options):
                self.assertEqual(self.run_script("run_ddp.sh", *NODE, *options, **variables).returncode, 0)
                env, argv = self.seen()["env"], self.seen()["argv"]
                self.assertEqual((env["NCCL_SOCKET_IFNAME"], env["GLOO_SOCKET_IFNAME"]), (expected, expected))
                self.assertEqual(argv[argv.index("--if-name") + 1], expected)

    def test_other_options_are_passed_on(self):
        done = self.run_script("run.sh", *NODE, "--run-dir", "a b", "--resume=auto", "--json", cwd="/usr", SLUICE_CONFIG="c.toml")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(self.seen()["argv"], ["train", "/usr/c.toml", "--set", "log.lines=full",
                                               "--run-dir", "/usr/a b", "--resume", "auto", "--json"])

    def test_every_process_of_ddp_knows_its_place(self):
        self.assertEqual(self.run_script("run_ddp.sh", "3", "2", "1", "h", "5000", "0", "0.1", "10", "--run-dir", "/r").returncode, 0)
        for local in range(3):
            seen = self.seen(3 + local)
            place = {name: seen["env"][name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
            self.assertEqual(place, {"RANK": str(3 + local), "WORLD_SIZE": "6", "LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": "3"})
            self.assertEqual(seen["argv"], self.seen(3)["argv"])
        self.assertEqual(self.sets(3)["train.global_batch"], "60")
        self.assertEqual((self.sets(3)["pipeline.stages"], self.sets(3)["replicas.local"]), ("1", "1"))
        self.assertEqual(self.seen(3)["argv"][1], "configs/ddp.toml")
        self.assertIn("/r", self.seen(5)["argv"])

    def test_a_dry_run_is_one_process(self):
        self.assertEqual(self.run_script("run_ddp.sh", "4", "2", "1", "h", "5000", "--dry-run").returncode, 0)
        self.assertEqual([file.name for file in self.folder.glob("*.json")], ["4.json"])

    def test_a_single_device(self):
        for is_gpu, device in (("1", "cuda"), ("0", "cpu")):
            done = self.run_script("run_single_gpu.sh", "0.03", "64", "cifar10", "./data", is_gpu, "--set", "train.steps=5", cwd="/usr", RANK="1")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(self.seen()["argv"][:2], ["train", "configs/single_device.toml"])
            self.assertNotIn("RANK", self.seen()["env"])
            self.assertEqual(
                self.sets(),
                {"pipeline.stages": "1", "replicas.local": "1", "log.lines": "full", "train.lr": "0.03", "data.name": "cifar10",
                 "data.path": "/usr/./data", "device.list": device, "train.global_batch": "64", "train.steps": "5"})
        self.assertEqual(self.run_script("run_single_gpu.sh", "0.1").returncode, 0)
        self.assertEqual(self.sets(), {"pipeline.stages": "1", "replicas.local": "1", "log.lines": "full", "train.lr": "0.1"})

    def test_bad_arguments_start_nothing(self):
        cases = (
            (("run.sh", *NODE[:4]), "4 arguments"),
            (("run.sh", *NOTE, "x"), "11 arguments"),
            (("run_ddp.sh",), "0 arguments"),
            (("run_single_gpu.sh",), "0 arguments"),
            (("run_single_gpu.sh", "1", "1", "s", "d", "2"), "IS_GPU = '2'"),
            (("run_single_gpu.sh", "1", "1", "s", "d", "1", "6"), "6 arguments"),
            (("run.sh", "0", *NODE[1:]), "NPROC = '0'"),
            (("run.sh", "two", *NODE[1:]), "NPROC = 'two'"),
            (("run.sh", "a[$(touch x)]", *NODE[1:]), "NPROC = "),
            (("run.sh", "1", "99999", *NODE[2:]), "NNODES = '99999'"),
            (("run.sh", "1", "2", "2", "h", "5000"), "NODE_RANK = '2' is not a whole number from 0 to 1"),
            (("run.sh", "1", "2", "0", "", "5000"), "MASTER_ADDR is empty"),
            (("run.sh", "1", "2", "0", "h", "65536"), "MASTER_PORT = '65536'"),
            (("run.sh", "1", "2", "0", "h", "0"), "MASTER_PORT = '0'"),
            (("run.sh", *NODE, "ib0"), "IB = 'ib0'"),
            (("run.sh", *NODE, "1", "fast"), "LR = 'fast'"),
            (("run.sh", *NODE, "1", ""), "LR = ''"),
            (("run.sh", *NODE, "1", "1", "1.5"), "BATCH = '1.5'"),
            (("run.sh", *NODE, "1", "1", "0"), "BATCH = '0'"),
            (("run.sh", *NODE, "1", "1", "1", ""), "DATASET is empty"),
            (("run.sh", *NODE, "1", "1", "1", "s", ""), "DATADIR is empty"),
            (("run.sh", *NODE, "--run-dir"), "--run-dir needs a value"),
        )
        for command, sentence in cases:
            with self.subTest(command=command):
                done = self.run_script(*command)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertTrue(done.stderr.startswith(command[0] + ": "), done.stderr)
                self.assertIn(sentence, done.stderr.splitlines()[0])
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_bad_configuration_ends_it_with_the_code_of_sluice(self):
        done = self.run_script("run.sh", *NOTE, FAKE_LOCAL="bad")
        self.assertEqual((done.returncode, done.stderr), (2, "error   no such key\n"))


class ConfigurationsTest(unittest.TestCase):
    def test_bert_has_the_shape_of_the_configuration_that_it_replaces(self):
        for script, config, tables in (("run.sh", "pipe_ddp.toml", ["pipeline"]), ("run_elastic_pipe.sh", "elastic_pipe.toml", ["pipeline", "freeze"])):
            text = (REPOSITORY / "scripts" / script).read_text()
            [shape] = [line for line in text.splitlines() if line.lstrip().startswith("text_shape=")]
            expected = tomllib.loads((REPOSITORY / "configs" / config).read_text())
            self.assertEqual([word for word in shape.strip(" )").split() if "." in word],
                             [f"{table}.{key}={value}" for table in tables for key, value in expected[table].items()])

    def test_the_configurations_of_texts_leave_the_shape_to_the_scripts(self):
        for name, task in (("bert_squad.toml", "squad"), ("bert_classify.toml", "jsonl")):
            config = tomllib.loads((REPOSITORY / "configs" / name).read_text())
            self.assertEqual((config["model"]["name"], config["data"]["name"]), ("bert", task))
            self.assertFalse({"device", "pipeline", "replicas", "freeze"} & set(config))

    def test_they_share_their_recipe(self):
        """What the launch scripts compare differs in the pipeline alone."""
        texts = [(REPOSITORY / "configs" / name).read_text() for name in ("pipe_ddp.toml", "ddp.toml", "single_device.toml")]
        recipes = {text[text.index("[device]"):text.index("[pipeline]")] for text in texts}
        self.assertEqual(len(recipes), 1)
        self.assertTrue(all("[replicas]\nlocal = 1\n" in text for text in texts))  # so that BATCH is per process


if __name__ == "__main__":
    unittest.main()
