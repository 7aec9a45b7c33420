#!/usr/bin/env python3
"""scripts/run_*_batch_experiment_node*.sh: which runs they start, their logs, and what ends them."""

import json
import signal
import unittest

from launch_test import LaunchCase

RATES = ["0.03", "0.01", "0.3", "0.1"]
CIFAR = "run_cifar100_batch_experiment_node{}.sh"
IMAGENET = "run_imagenet_batch_experiment_node{}.sh"


class SweepTest(LaunchCase):
    def setUp(self):
        super().setUp()
        self.sweep = self.copy.bin.parent / "my sweep"

    def history(self, rank=0):
        """What each run of this rank was started with."""
        file = self.folder / f"{rank}.history"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def values(self, key, rank=0):
        return [dict(word.split("=", 1) for word in run["argv"] if "=" in word).get(key) for run in self.history(rank)]

    def start_sweep(self, *arguments, plan):
        process = self.start_script(CIFAR.format(0), 4, "h", *arguments, "--run-dir", self.sweep, plan=plan)
        self.seen()
        return process

    def test_the_runs_of_the_notes(self):
        for script, node, batch, data in ((CIFAR, 0, 640, "cifar100"), (CIFAR, 1, 640, "cifar100"),
                                          (IMAGENET, 0, 800, "imagenet"), (IMAGENET, 1, 800, "imagenet")):
            with self.subTest(script=script, node=node):
                for file in self.folder.iterdir():
                    file.unlink()
                done = self.run_script(script.format(node), "--run-dir", self.sweep / data, cwd="/usr", MASTER_ADDR="10.0.0.1")
                self.assertEqual((done.returncode, done.stdout), (0, ""))
                self.assertEqual(self.values("train.lr", node), RATES)
                self.assertEqual(set(self.values("train.global_batch", node)), {str(batch)})
                self.assertEqual(set(self.values("data.name", node)), {"image_folder" if data == "imagenet" else data})
                self.assertEqual(set(self.values("data.path", node)), {f"/usr/data/{data}"})
                self.assertEqual(set(self.values("pipeline.stages", node)), {"8"})
                self.assertEqual(set(self.values("freeze.policy", node)), {"linear"})
                environments = [run["env"] for run in self.history(node)]
                self.assertEqual([one["MASTER_PORT"] for one in environments], ["22222", "22223", "22224", "22225"])
                self.assertEqual({(one["MASTER_ADDR"], one["RANK"], one["WORLD_SIZE"]) for one in environments}, {("10.0.0.1", str(node), "2")})
                self.assertEqual([run["argv"][run["argv"].index("--run-dir") + 1] for run in self.history(node)],
                                 [f"{self.sweep}/{data}/lr-{rate}" for rate in RATES])

    def test_one_log_each(self):
        done = self.run_script(CIFAR.format(1), 2, "h", "--run-dir", self.sweep, plan={"1": {"say": "I am a run"}})
        self.assertEqual(done.returncode, 0)
        logs = [self.sweep / f"lr-{rate}-node1.log" for rate in RATES]
        self.assertEqual([log.read_text() for log in logs], ["I am a run\n"] * 4)
        self.assertEqual(done.stderr.splitlines(),
                         [f"{CIFAR.format(1)}: learning rate {rate}, {i} of 4: {log}" for i, (rate, log) in enumerate(zip(RATES, logs), 1)])

    def test_arguments_replace_those_of_the_notes(self):
        done = self.run_script(CIFAR.format(0), 4, "h", 5000, 0, "lo", 10, "d", 2, 0, "no_auto_dp", "--set", "model.size=a b",
                               "--run-dir", self.sweep, cwd="/usr")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("report", done.stderr.splitlines()[-1])
        for key, value in (("train.global_batch", "40"), ("pipeline.stages", "2"), ("replicas.local", "2"), ("data.path", "/usr/d"),
                           ("freeze.policy", "none"), ("freeze.replicas", "false"), ("model.size", "a b")):
            self.assertEqual(self.values(key), [value] * 4, key)
        self.assertEqual({run["env"]["GLOO_SOCKET_IFNAME"] for run in self.history()}, {"lo"})
        self.assertEqual(self.history()[3]["env"]["MASTER_PORT"], "5003")

    def test_a_rate_that_fails_does_not_end_it(self):
        done = self.run_script(CIFAR.format(0), 4, "h", "--run-dir", self.sweep,
                               plan={"0": {"say": "how it went", "code_of": {"train.lr=0.01": 6, "train.lr=0.3": 4}}})
        self.assertEqual(done.returncode, 6)
        self.assertEqual(self.values("train.lr"), RATES)
        self.assertIn("learning rate 0.01 ended with exit code 6: how it went\n", done.stderr)

    def test_a_run_that_was_stopped_ends_it(self):
        """The other node's stop.sh lets this one's run end with 130."""
        done = self.run_script(CIFAR.format(0), 4, "h", "--run-dir", self.sweep, plan={"0": {"code_of": {"train.lr=0.01": 130}}})
        self.assertEqual(done.returncode, 130)
        self.assertEqual(self.values("train.lr"), RATES[:2])
        self.assertIn("--resume auto", done.stderr)

    def test_stop_ends_it_and_asks_the_run_once(self):
        process = self.start_sweep(plan={"0": {"sleep": 60}})
        done = self.run_script("stop.sh")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"{CIFAR.format(0)} (pid {process.pid}), learning rate 0.03 (pid {self.seen()['pid']})", done.stderr)
        self.assertEqual(process.wait(timeout=60), 130)
        self.assertEqual(self.signals(), ["SIGTERM"])
        self.assertEqual(len(self.history()), 1)
        self.assertEqual([file.name for file in (self.copy.bin.parent / "started").iterdir()], ["lock"])

    def test_stop_ends_a_run_whose_sweep_was_killed(self):
        process = self.start_sweep(plan={"0": {"sleep": 60}})
        process.kill()
        process.wait()
        self.assertEqual(self.run_script("stop.sh").returncode, 0)
        self.assertEqual(self.signals(), ["SIGTERM"])

    def test_a_signal_is_passed_on_once(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(signal=number.name):
                for file in self.folder.iterdir():
                    file.unlink()
                process = self.start_sweep(plan={"0": {"sleep": 60}})
                process.send_signal(number)
                self.assertEqual(process.wait(timeout=60), 130)
                self.assertEqual((self.signals(), len(self.history())), ([number.name], 1))

    def test_it_goes_on_in_its_folder(self):
        done = self.run_script(CIFAR.format(0), 4, "h", "--run-dir", self.sweep, "--resume", "auto")
        self.assertEqual(done.returncode, 0, done.stderr)
        argv = self.history()[1]["argv"]
        self.assertEqual((argv[argv.index("--resume") + 1], argv[argv.index("--run-dir") + 1]), ("auto", f"{self.sweep}/lr-0.01"))

    def test_a_dry_run_leaves_nothing(self):
        done = self.run_script(CIFAR.format(0), 4, "h", "--dry-run", plan={"0": {"say": "a plan"}})
        self.assertEqual((done.returncode, done.stderr), (0, "a plan\n" * 4))
        self.assertFalse((self.copy.root / "runs").exists())

    def test_bad_arguments_start_nothing(self):
        for arguments, sentence in (
                ((), "MASTER_ADDR is missing"),
                ((8, ""), "MASTER_ADDR is empty"),
                ((8, "h", 65533), "MASTER_PORT = '65533' is not a whole number from 1 to 65532"),
                ((8, "h", 5000, 2), "IB = '2'"),
                ((8, "h", 5000, 1, "", 0), "BATCH = '0'"),
                ((8, "h", 5000, 1, "", 320, ""), "DATADIR is empty"),
                ((8, "h", 5000, 1, "", 320, "d", 3), "NPROC = 8 is not a multiple of PIPE_LEN = 3"),
                ((8, "h", 5000, 1, "", 320, "d", 8, 1, "cash"), "'cash' is not one of"),
                ((8, "h", "--resume", "auto"), "--run-dir FOLDER --resume auto"),
                ((8, "h", "--run-dir", "a", "--resume", "b"), "--run-dir FOLDER --resume auto")):
            with self.subTest(arguments=arguments):
                done = self.run_script(CIFAR.format(0), *arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(sentence, done.stderr.splitlines()[0])
        self.assertEqual(list(self.folder.iterdir()), [])
        self.assertFalse((self.copy.root / "runs").exists())


if __name__ == "__main__":
    unittest.main()
