#!/usr/bin/env python3
"""What a run does if the system gives it too little: descriptors, stacks, threads, answers of a DNS server.

    limits_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import importlib.util
import os
import pathlib
import resource
import subprocess
import tempfile
import unittest

import long_tests
import sluice_cli as cli

STEPS = 4


def limit_to(kind, soft, hard):
    return lambda: resource.setrlimit(kind, (soft, hard))


class LimitsTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.run_dir = self.folder / "run"
        self.config = cli.write_config(
            self.folder / "small.toml", device={"list": "cpu"}, model={"name": "mlp", "image_size": 8},
            data={"name": "shapes", "samples": 64}, train={"global_batch": 16, "lr": 0.05, "steps": STEPS})

    def run_under(self, limit, *arguments, run_dir=None, **more):
        return cli.run("train", self.config, "--run-dir", run_dir or self.run_dir, *arguments, preexec_fn=limit, **more)

    # The rendezvous socket had number 2, and the log went into it.
    def test_standard_descriptors_may_be_closed(self):
        done = cli.finish_all(cli.start_ranks(2, "train", self.config, "--run-dir", self.run_dir,
                                              preexec_fn=lambda: os.close(2)))
        self.assertEqual([process.returncode for process in done], [0, 0])
        self.assertEqual(cli.column(self.run_dir, "step"), list(range(1, STEPS + 1)))
        self.assertNotIn("info", (self.run_dir / ".lock").read_text())

    def test_too_few_open_files_are_said_at_the_start(self):
        done = self.run_under(limit_to(resource.RLIMIT_NOFILE, 8, 8))
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("may open 8 files and sockets", cli.error_of(done))
        self.assertIn("ulimit -n", cli.error_of(done))
        self.assertFalse(self.run_dir.exists())

    def test_a_rank_that_may_open_too_few_files_tells_the_others(self):
        port = cli.free_port()
        done = cli.finish_all([cli.start("train", self.config, "--run-dir", self.run_dir, env=cli.rank_environment(rank, 2, port),
                                         preexec_fn=limit_to(resource.RLIMIT_NOFILE, 24, 24) if rank == 1 else None)
                               for rank in range(2)])
        self.assertEqual([process.returncode for process in done], [5, 4], [process.stderr for process in done])
        self.assertIn("may open 24 files and sockets", cli.error_of(done[0]))

    def test_a_limit_on_file_sizes_is_an_error_of_every_command(self):
        limit, out = limit_to(resource.RLIMIT_FSIZE, 16 << 10, 16 << 10), self.folder / "out.safetensors"
        for done in (cli.run("step", self.config, "--out", out, preexec_fn=limit), self.run_under(limit)):
            self.assertEqual(done.returncode, 8, done.stderr)
            self.assertIn("ulimit -f", cli.error_of(done))
        self.assertFalse(out.exists())

    def test_a_soft_limit_and_a_small_stack_end_no_run(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (8, 1024))
            resource.setrlimit(resource.RLIMIT_STACK, (128 << 10, 128 << 10))
        done = self.run_under(limit, *cli.options(pipeline={"stages": 2}))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_tiny_stack_is_an_error_of_ours(self):
        done = self.run_under(limit_to(resource.RLIMIT_STACK, 48 << 10, 48 << 10))
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("ulimit -s", cli.error_of(done))

    # OpenMP ended the process with 1, ZeroMQ with SIGABRT.
    def test_too_few_threads_are_an_error_of_ours(self):
        for threads in long_tests.some((4,), range(8), "one start each"):
            with self.subTest(threads=threads):
                environment = cli.environment_without_launchers() | cli.poor_machine(SLUICE_TEST_THREADS=str(threads))
                done = self.run_under(None, *cli.options(device={"threads": 4}), run_dir=self.folder / str(threads),
                                      env=environment)
                if threads == 7 and done.returncode == 0:  # all that there are
                    continue
                self.assertEqual(done.returncode, 4, done.stderr)
                self.assertIn("refuses to start another thread", cli.error_of(done))
                self.assertIn("ulimit -u", cli.error_of(done))

    # LibTorch's store looks up the name of each address, and rank 0 serves nobody meanwhile.
    def test_a_dns_server_that_does_not_answer_keeps_no_rank_from_starting(self):
        silent_dns = cli.poor_machine(SLUICE_TEST_SILENT_DNS="1")
        done = cli.finish_all(cli.start_ranks(2, "train", self.config, *cli.options(replicas={"connect_timeout_s": 9}),
                                              "--run-dir", self.run_dir, environments_of={0: silent_dns, 1: silent_dns}))
        self.assertEqual([process.returncode for process in done], [0, 0], [process.stderr for process in done])


class CudaLibraryTest(unittest.TestCase):
    """LibTorch's CUDA library is loaded by the program itself, only if there is a driver (src/device/cuda)."""

    def setUp(self):
        if "with CUDA" not in cli.run("--version").stdout:
            self.skipTest("this build has no CUDA support")

    def devices(self, **environment):
        done = cli.run("devices", env=cli.environment_without_launchers() | environment)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return done

    def test_without_a_driver_it_is_not_loaded(self):
        if any(pathlib.Path("/dev").glob("nvidia*")):
            self.skipTest("this machine has a driver")
        self.assertNotIn("libtorch_cuda", self.devices(LD_DEBUG="files").stderr)

    def test_with_a_driver_it_is_loaded(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", f"{folder}/libcuda.so.1"], check=True)
        self.assertIn("libtorch_cuda", self.devices(LD_DEBUG="files", LD_LIBRARY_PATH=folder).stderr)

    def test_it_has_all_functions_that_are_called(self):
        libraries = pathlib.Path(importlib.util.find_spec("torch").origin).parent / "lib"
        self.devices(LD_BIND_NOW="1", LD_PRELOAD=str(libraries / "libtorch_cuda.so"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
