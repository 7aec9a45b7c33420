#!/usr/bin/env python3
"""scripts/run_perf_amb.sh: the command lines of the anytime project's users, and what `sluice train` gets of them."""

import tomllib
import unittest

from launch_test import LaunchCase
from script_copy import REPOSITORY

SCRIPT = "run_perf_amb.sh"
FMB = ("cifar10", "fmb", "rms", "242", "--test_size", "100", "--induce", "--decay_rate", "0.93")
AMB = ("cifar10", "amb", "rms", "356", "--amb_time_limit", "6.2", "--amb_num_partitions", "16", "--test_size", "100", "--induce",
       "--decay_rate", "0.93")
RMS = {"train.optimizer": "rmsprop", "train.rms_alpha": "0.9", "train.eps": "1e-5"}
VIRTUAL = {"ps.clock": "virtual", "ps.workers": "10", "ps.sample_s": "0.0223"}
CIFAR10 = {"data.name": "cifar10", "data.path": "data/cifar10"}
FALLS = {"train.eval_limit": "100", "train.lr_decay": "0.93", "ps.induce": "ec2"}


class ArgumentsTest(LaunchCase):
    def sets_of(self, *arguments, **more):
        done = self.run_script(SCRIPT, *arguments, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.said = done.stderr
        return self.sets(int(more.get("RANK", 0)))

    def test_the_lines_of_their_comparison(self):
        self.assertEqual(self.sets_of(*FMB), {**CIFAR10, "ps.policy": "fmb", "ps.worker_batch": "242", **RMS, **FALLS, **VIRTUAL})
        self.assertEqual(self.seen()["argv"][:2], ["train", "configs/perf_amb.toml"])
        self.assertIn("no launcher: ten workers on a virtual clock", self.said)
        self.assertEqual(len(self.said.splitlines()), 1)
        self.assertEqual(
            self.sets_of(*AMB),
            {**CIFAR10, "ps.policy": "amb", "ps.time_limit_s": "6.2", "ps.partitions": "16", "ps.worker_batch": "352", **RMS,
             **FALLS, **VIRTUAL})

    def test_other_lines_of_theirs(self):
        for line, expected in (
                ("mnist fmb rms 64", {"data.name": "mnist", "data.path": "data/mnist", "model.name": "toy_cnn", "ps.worker_batch": "64"}),
                ("mnist amb adm 64 --amb_time_limit 9.2 --amb_num_splits 64 --starter_learning_rate 0.001",
                 {"train.optimizer": "adam", "ps.partitions": "64", "ps.time_limit_s": "9.2", "train.lr": "0.001"}),
                ("cifar10 amb mom 256 --amb_time_limit=.5 --amb_num_partitions=8 --last_step 1500 --decay_steps 20 --log_freq 5",
                 {"train.optimizer": "momentum", "train.momentum": "0.9", "ps.time_limit_s": "0.5", "ps.partitions": "8",
                  "train.steps": "1500", "train.lr_decay_every": "20", "log.every": "5"}),
                ("--induce toy fmb sgd 008 --test_size -1",
                 {"data.name": "shapes", "model.name": "toy_cnn", "train.optimizer": "sgd", "ps.worker_batch": "8",
                  "train.eval_limit": "0", "ps.induce": "ec2"}),
                ("toy_model fmb sgd 8", {"data.name": "shapes"}),
                ("fashion_mnist fmb sgd 8", {"data.name": "fashion_mnist", "model.name": "toy_cnn"}),
                ("cifar100 fmb sgd 8", {"data.name": "cifar100"})):
            with self.subTest(line=line):
                sets = self.sets_of(*line.split())
                self.assertEqual({key: sets.get(key) for key in expected}, expected)
                self.assertEqual("data.path" in sets, "mnist" == sets["data.name"] or "cifar10" == sets["data.name"])
                self.assertEqual("ps.induce" in sets, "--induce" in line)

    def test_fmb_leaves_out_what_is_for_amb(self):
        sets = self.sets_of("cifar10", "fmb", *AMB[2:])
        self.assertEqual([key for key in sets if key in ("ps.time_limit_s", "ps.partitions")], [])
        self.assertEqual(sets["ps.worker_batch"], "356")
        self.assertIn("ignoring these arguments", self.said)

    def test_under_a_launcher_the_first_process_is_the_master(self):
        for variables, rank in (
                ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3"}, 0), ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}, 2),
                ({"RANK": "0", "WORLD_SIZE": "4"}, 0), ({"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, 1),
                ({"PMI_RANK": "1", "PMI_SIZE": "3"}, 1), ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, 0)):
            with self.subTest(variables=variables):
                sets = self.sets_of(*AMB, **variables)
                self.assertEqual([key for key in sets if key in VIRTUAL], [])
                self.assertEqual("this one is the master" in self.said, rank == 0)
                for name in {"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"} & variables.keys():
                    self.assertEqual(self.seen(int(variables.get("RANK", 0)))["env"][name], variables[name])
        # An allocation's shell and its batch script have launched nothing yet.
        self.assertEqual(self.sets_of(*AMB, SLURM_PROCID="0", SLURM_NTASKS="2")["ps.clock"], "virtual")

    def test_a_set_of_the_user_wins_and_options_are_passed_on(self):
        sets = self.sets_of(*AMB, "--set", "ps.workers=3", "--set=data.path=/d", "--run-dir", "a b", "--json", SLUICE_CONFIG="c.toml", cwd="/usr")
        self.assertEqual([sets[key] for key in ("ps.workers", "data.path", "ps.sample_s")], ["3", "/d", "0.0223"])
        argv = self.seen()["argv"]
        self.assertEqual(argv[:2], ["train", "/usr/c.toml"])
        self.assertEqual(argv[-3:], ["--run-dir", "/usr/a b", "--json"])

    def test_help(self):
        done = self.run_script(SCRIPT, "--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for word in ("--amb_time_limit", "--amb_num_partitions", "--test_size", "--induce", "--decay_rate", "--starter_learning_rate",
                     "ten workers", "virtual clock", "mpirun"):
            self.assertIn(word, done.stdout)

    def test_bad_arguments_start_nothing(self):
        for arguments, sentence in (
                ((), "0 arguments, but it takes 4"),
                (("cifar10", "amb", "rms"), "3 arguments"),
                ((*AMB[:4], "5"), "5 arguments"),
                (("", *FMB[1:]), "DATASET is empty"),
                (("mnist", "imb", "rms", "64"), "'imb' is neither amb nor fmb"),
                (("sst2", "fmb", "adm", "64"), "DATASET = 'sst2' has texts, but these runs train models of images"),
                (("mnist", "fmb", "adam", "64"), "OPTIMIZER = 'adam' is not one of rms, adm, mom, sgd"),
                (("mnist", "fmb", "rms", "0"), "BATCH = '0'"),
                (("mnist", "fmb", "rms", "a[$(touch x)]"), "BATCH = "),
                (AMB[:4], "amb needs --amb_time_limit and --amb_num_partitions"),
                (AMB[:6], "amb needs --amb_time_limit and --amb_num_partitions"),
                ((*AMB[:5], "soon", *AMB[6:]), "--amb_time_limit = 'soon' is not a number"),
                ((*AMB[:7], "357"), "--amb_num_partitions = 357 is more than BATCH = 356"),
                ((*FMB, "--test_size", "-2"), "--test_size = '-2'"),
                ((*FMB, "--decay_rate", "fast"), "--decay_rate = 'fast' is not a number"),
                ((*FMB, "--decay_steps", "0"), "--decay_steps = '0'"),
                ((*FMB, "--last_step"), "--last_step needs a value")):
            with self.subTest(arguments=arguments):
                done = self.run_script(SCRIPT, *arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertTrue(done.stderr.startswith(SCRIPT + ": "), done.stderr)
                self.assertIn(sentence, done.stderr.splitlines()[0])
        self.assertEqual(list(self.folder.iterdir()), [])


class ConfigurationTest(unittest.TestCase):
    def test_it_is_their_recipe(self):
        ours = tomllib.loads((REPOSITORY / "configs/perf_amb.toml").read_text())
        recipe = {key: ours["train"][key] for key in ("lr", "lr_schedule", "lr_decay_every", "lr_decay")}
        self.assertEqual(recipe, {"lr": 0.001, "lr_schedule": "step", "lr_decay_every": 50, "lr_decay": 1.0})
        self.assertEqual(ours["replicas"]["sync"], "ps")


if __name__ == "__main__":
    unittest.main()
