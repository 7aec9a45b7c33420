#!/usr/bin/env python3
"""Real launchers: what Slurm and Open MPI start is one run, and the examples work. (torchrun: torchrun_test.py)

    launchers_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

import long_tests
import slurm
import sluice_cli as cli

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
STEPS = 6


def configuration(folder, **train):
    return cli.write_config(
        folder / "train.toml", device={"list": "cpu", "threads": 1}, model={"name": "mlp", "image_size": 8},
        data={"name": "shapes", "samples": 60},
        train={"deterministic": True, "steps": STEPS, "global_batch": 12, "lr": 0.05, "precision": "fp64", "seed": 3, **train},
        replicas={"connect_timeout_s": 60}, checkpoint={"every_steps": 3}, log={"every": 1})


def losses(run_dir):
    return [line["loss"] for line in cli.events(run_dir, "step")]


def text_of(done):
    return f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"


def setUpModule():
    """The run that the tests start by hand."""
    LaunchedCase.kept = folder = pathlib.Path(unittest.enterModuleContext(tempfile.TemporaryDirectory()))
    LaunchedCase.config = configuration(folder)
    cli.must_run_ranks(2, "train", LaunchedCase.config, "--run-dir", folder / "by-hand")
    LaunchedCase.expected = losses(folder / "by-hand")
    assert len(LaunchedCase.expected) == STEPS


class LaunchedCase(unittest.TestCase):
    """What every launcher must come to: the run of as many processes that the tests have started by hand."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.run_dir = self.folder / "run"

    def train(self, *more, run_dir=None):
        return cli.BINARY, "train", self.config, "--run-dir", run_dir or self.run_dir, *more

    def assert_ran_as_two(self, done, launcher):
        self.assertEqual(done.returncode, 0, text_of(done))
        self.assertIn(f"2 processes, according to {launcher}", done.stdout + done.stderr)
        self.assertEqual(losses(self.run_dir), self.expected)


def processes_by_hand(*commands):
    return cli.finish_all([subprocess.Popen([str(word) for word in command], env=cli.environment_without_launchers(),
                                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                           for command in commands])


class ByFileTest(LaunchedCase):
    """`--init file://PATH`: the processes need no port that is free, nor a launcher."""

    def test_processes_meet_by_a_file(self):
        self.folder.joinpath("meeting").write_text('{"address": "127.0.0.1", "port": 1, "run": "of a run that was killed"')
        init = ("--world-size", 2, "--init", f"file://{self.folder}/meeting")
        done = processes_by_hand(self.train(*init, "--rank", 1), self.train(*init, "--rank", 0))
        for process in done:
            self.assertEqual(process.returncode, 0, text_of(process))
        self.assertIn("2 processes, according to the command line", done[1].stderr)
        self.assertEqual(losses(self.run_dir), self.expected)
        self.assertFalse(self.folder.joinpath("meeting").exists())

    def test_a_folder_that_is_not_there_is_named_to_all(self):
        init = ("--world-size", 2, "--init", f"file://{self.folder}/none/meeting", "--set", "replicas.connect_timeout_s=2")
        done = processes_by_hand(self.train(*init, "--rank", 0), self.train(*init, "--rank", 1))
        self.assertEqual([process.returncode for process in done], [2, 5], [text_of(process) for process in done])
        self.assertIn("the folder does not exist", cli.error_of(done[0]))
        self.assertIn("did not find rank 0 by the file", cli.error_of(done[1]))
        self.assertFalse(self.run_dir.exists())


class OpenMpiTest(LaunchedCase):
    def setUp(self):
        super().setUp()
        if shutil.which("mpirun") is None:
            self.skipTest("there is no mpirun (Debian: openmpi-bin)")

    def mpirun(self, *command, **variables):
        # As root, and with more processes than cores where there are few.
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return subprocess.run(["mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none", *map(str, command)],
                              env={**os.environ, **root, **variables}, text=True, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=cli.PATIENCE_S, check=False)

    def test_it_needs_no_address_on_one_machine(self):
        self.assert_ran_as_two(self.mpirun(*self.train()), "Open MPI (mpirun)")

    @long_tests.only("two runs of one launch; a launch is one in CI")
    def test_two_runs_at_once_do_not_meet(self):
        second = self.folder / "second"
        both = [subprocess.Popen(["mpirun", "--allow-run-as-root", "-n", "2", "--oversubscribe", "--bind-to", "none",
                                  *map(str, self.train(run_dir=run_dir))], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                for run_dir in (self.run_dir, second)]
        for done in cli.finish_all(both):
            self.assertEqual(done.returncode, 0, text_of(done))
        self.assertEqual([losses(self.run_dir), losses(second)], [self.expected] * 2)

    @long_tests.only("what is refused is in comm_base_test")
    def test_variables_that_say_something_else_are_refused(self):
        done = self.mpirun(*self.train(), RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(cli.free_port()))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("two launchers contradict each other: RANK and WORLD_SIZE gives rank 0 of 2", done.stderr)
        self.assertIn("Open MPI (mpirun) gives rank 1 of 2", done.stderr)


class SlurmTest(LaunchedCase):
    """On a cluster of this machine."""

    @classmethod
    def setUpClass(cls):
        if missing := slurm.missing():
            raise unittest.SkipTest(missing)
        super().setUpClass()
        cls.cluster = cls.enterClassContext(slurm.Cluster(cls.kept / "cluster"))

    def batch(self, script, *options, **variables):
        """What a job script says that has ended."""
        (self.folder / "job.sh").write_text(f"#!/bin/bash\n{script}\n")
        log = self.folder / "job.log"
        done = self.cluster.run("sbatch", "--wait", f"--output={log}", *options, self.folder / "job.sh", **variables)
        done.stdout += log.read_text()
        return done

    def test_srun_starts_a_run(self):
        self.assert_ran_as_two(self.cluster.run("srun", "-n", 2, *self.train()), "Slurm (srun)")

    @long_tests.only("two more jobs")
    def test_two_steps_of_a_job_at_once_do_not_meet(self):
        second = self.folder / "second"
        lines = [f"srun -n 2 --overlap {shlex.join(map(str, self.train(run_dir=run_dir)))} &"
                 for run_dir in (self.run_dir, second)]
        done = self.batch("\n".join([*lines, "wait -n && wait -n"]), "-n", 2)
        self.assertEqual(done.returncode, 0, text_of(done))
        self.assertEqual([losses(self.run_dir), losses(second)], [self.expected] * 2, text_of(done))

    def test_a_batch_script_without_srun_is_one_process_and_hears_of_it(self):
        done = self.batch(shlex.join(map(str, self.train())), "-n", 2)
        self.assertEqual(done.returncode, 0, text_of(done))
        self.assertIn("the Slurm job has 2 tasks, but this process was not started by srun", done.stdout)
        self.assertEqual(cli.events(self.run_dir, "plan")[0]["processes"], 1)

    @long_tests.only("one more job")
    def test_mpirun_in_a_batch_script_is_what_counts(self):
        if shutil.which("mpirun") is None:
            self.skipTest("there is no mpirun (Debian: openmpi-bin)")
        mpirun = "mpirun --allow-run-as-root -n 2 --oversubscribe --bind-to none "
        self.assert_ran_as_two(self.batch(mpirun + shlex.join(map(str, self.train())), "-n", 2), "Open MPI (mpirun)")

    @long_tests.only("one more job")
    def test_torchrun_in_a_task_of_srun_is_what_counts(self):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--standalone", "--nproc-per-node", 2]
        self.assert_ran_as_two(self.cluster.run("srun", "-n", 1, *torchrun, *self.train()), "torchrun")

    @long_tests.only("one more job; what is refused is in comm_base_test")
    def test_variables_of_the_whole_job_are_refused(self):
        done = self.cluster.run("srun", "-n", 2, *self.train(), RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                                MASTER_PORT=str(cli.free_port()))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("Slurm (srun) gives rank 1 of 2 (SLURM_PROCID, SLURM_STEP_NUM_TASKS)", done.stderr)

    def example(self, *words, **variables):
        log = self.folder / "example.log"
        done = self.cluster.run("sbatch", "--wait", "--nodes=1", "--ntasks=2", "--ntasks-per-node=2", f"--output={log}",
                                EXAMPLES / "slurm" / "train.sbatch", *words, cwd=self.folder,
                                SLUICE=str(pathlib.Path(cli.BINARY).resolve()), RUN_DIR=str(self.run_dir), **variables)
        done.stdout += log.read_text()
        return done

    def submit(self, name, config, log):
        """The number of a job of two tasks that goes on until it is cancelled."""
        submitted = self.cluster.run(
            "sbatch", "--parsable", "--nodes=1", "--ntasks=2", "--ntasks-per-node=2", f"--output={log}",
            EXAMPLES / "slurm" / name, config, cwd=self.folder, SLUICE=str(pathlib.Path(cli.BINARY).resolve()),
            RUN_DIR=str(self.run_dir))
        job = submitted.stdout.strip()
        self.assertRegex(job, r"^\d+$", text_of(submitted))
        self.addCleanup(self.end, job)
        return job

    def end(self, job):
        """Its processes write to the test's folder until then."""
        self.cluster.run("scancel", job)
        cli.wait_for(lambda: not self.cluster.run("squeue", "--noheader", f"--jobs={job}").stdout, "the job ends")

    @long_tests.only("one more job; the next test trains by it, too")
    def test_the_example_trains(self):
        self.assert_ran_as_two(self.example(self.config), "Slurm (srun)")

    def test_the_example_saves_before_its_time_is_over_and_goes_on(self):
        script = (EXAMPLES / "slurm" / "train.sbatch").read_text()
        self.assertIn("#SBATCH --signal=B:USR1@120", script)
        # Slurm itself sends the signal only with minutes to go; a job can be sent it at any time.
        long = configuration(self.folder, steps=100000)
        log = self.folder / "example.log"
        job = self.submit("train.sbatch", long, log)
        metrics = self.run_dir / "metrics.jsonl"
        cli.wait_for(lambda: metrics.exists() and '"step":5,' in metrics.read_text(), "the job trains")
        self.cluster.run("scancel", "--batch", "--signal=USR1", job)
        cli.wait_for(lambda: "saved" in log.read_text(), "a checkpoint is saved")
        state = lambda: self.cluster.run("scontrol", "show", "job", job).stdout
        cli.wait_for(lambda: re.search(r"Requeue=1 Restarts=1", state()), "the job is in the queue again")
        # A requeued job waits for its former processes' end; it need not be waited for here that Slurm starts it.
        resumed = self.example(long, "--set", f"train.steps={self.steps_done() + 2}")
        self.assertEqual(resumed.returncode, 0, text_of(resumed))
        self.assertEqual(len(cli.events(self.run_dir, "resume")), 1)

    def test_the_elastic_example_takes_a_lost_process_back(self):
        long = configuration(self.folder, steps=100000)
        log = self.folder / "elastic.log"
        job = self.submit("elastic.sbatch", long, log)
        cli.wait_for(lambda: cli.events(self.run_dir, "step"), "the job trains")
        # Rank 0: the other one takes over its address, directory and records.
        subprocess.run(["pkill", "-9", "-o", "-f", f"train.*--run-dir {self.run_dir}"], check=True)
        cli.wait_for(lambda: cli.events(self.run_dir, "joined"), "the process is taken back")
        self.assertEqual(len(cli.events(self.run_dir, "lost")), 1)
        self.cluster.run("scancel", "--signal=TERM", job)
        cli.wait_for(lambda: "saved" in log.read_text(), "a checkpoint is saved")

    def steps_done(self):
        return cli.events(self.run_dir, "step")[-1]["step"]


class ExamplesTest(LaunchedCase):
    def test_the_pods_of_the_kubernetes_example_are_one_run(self):
        try:
            import yaml  # pylint: disable=import-outside-toplevel
        except ImportError:
            self.skipTest("there is no PyYAML")
        job = yaml.safe_load((EXAMPLES / "kubernetes" / "pytorchjob.yaml").read_text())
        self.assertEqual((job["apiVersion"], job["kind"]), ("kubeflow.org/v1", "PyTorchJob"))
        pods, port = [], cli.free_port()
        for kind, name in (("Master", "sluice-master-0"), ("Worker", "sluice-worker-0")):
            replica = job["spec"]["pytorchReplicaSpecs"][kind]
            self.assertEqual(replica["replicas"], 1)
            [container] = replica["template"]["spec"]["containers"]
            self.assertEqual(container["name"], "pytorch", "the operator sets the variables of this one")
            mounts = {mount["name"] for mount in container["volumeMounts"]}
            self.assertEqual(mounts, {volume["name"] for volume in replica["template"]["spec"]["volumes"]})
            pods.append((name, container))
        started = []
        for rank, (name, container) in enumerate(pods):
            # What the operator adds: kubeflow/training-operator, pkg/controller.v1/pytorch/envvar.go.
            operators = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                         "PYTHONUNBUFFERED": "1", "PET_NNODES": "2", "PET_NODE_RANK": str(rank), "HOSTNAME": name}
            self.assertEqual(container["command"], ["/sluice/build/release/sluice"])
            there = {"/config/train.toml": self.config, "/runs/first": self.run_dir}
            arguments = [str(there.get(word, word)) for word in container["args"] if not word.startswith("data.path=")]
            arguments.remove("--set")
            started.append(subprocess.Popen([cli.BINARY, *arguments], env={**cli.environment_without_launchers(), **operators},
                                            text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        done = cli.finish_all(started)
        self.assertEqual(done[1].returncode, 0, text_of(done[1]))
        self.assert_ran_as_two(done[0], "RANK and WORLD_SIZE")

    def test_the_container_recipe_builds_what_it_starts(self):
        text = (EXAMPLES / "container" / "Containerfile").read_text()
        instructions = re.findall(r"^([A-Z]+) ", text, re.MULTILINE)
        self.assertEqual(instructions[0], "FROM")
        self.assertIn("FROM debian:12", text)  # what scripts/dependencies.sh has its packages from
        repository = EXAMPLES.parent
        for script in re.findall(r"scripts/\w+\.sh", text):
            self.assertTrue(os.access(repository / script, os.X_OK), script)
        for config in re.findall(r"configs/\w+\.toml", text):
            self.assertTrue((repository / config).exists(), config)
        # What the image need not have is not copied into it; what bootstrap.sh reads is.
        ignored = (repository / ".dockerignore").read_text().split()
        self.assertLessEqual({"/.venv", "/build", "/data"}, set(ignored))
        self.assertFalse({"/scripts", "/src", "/cmake", "/configs", "/CMakeLists.txt"} & set(ignored))


if __name__ == "__main__":
    unittest.main()
