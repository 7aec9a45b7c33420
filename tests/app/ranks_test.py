#!/usr/bin/env python3
"""A run of several processes: it trains like one process, starts only when all agree, stops as one and resumes.

    ranks_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import json
import pathlib
import shutil
import signal
import socket
import tempfile
import time
import unittest

import long_tests
import sluice_cli as cli

STEPS, EVERY = 16, 4


def configuration(folder, name="run", **changes):
    """5 batches an epoch, of which the last is short; shuffled, augmented, with dropout."""
    tables = {
        "device": {"list": "cpu", "threads": 1},
        "model": {"name": "vit", "size": "nano", "image_size": 16, "dropout": 0.1},
        "data": {"name": "shapes", "samples": 70, "crop_padding": 2, "flip": True},
        "train": {"deterministic": True, "steps": STEPS, "global_batch": 16, "lr": 0.05, "precision": "fp64", "seed": 3,
                  "eval_batch": 6},
        "pipeline": {},
        "replicas": {"connect_timeout_s": 60},
        "checkpoint": {"every_steps": EVERY, "keep": 100},
        "log": {"every": 4}}
    return cli.write_config(folder / f"{name}.toml",
                            **{table: {**values, **changes.get(table, {})} for table, values in tables.items()})


def curve(run_dir):
    return [(line["step"], line["epoch"], line["batch"], line["samples"], line["loss"])
            for line in cli.events(run_dir, "step")]


class RanksCase(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.run_dir = self.folder / "run"

    def start(self, size, config, *arguments, **more):
        return cli.start_ranks(size, "train", config, "--run-dir", self.run_dir, *arguments, **more)

    def run_ranks(self, size, config, *arguments, **more):
        return cli.finish_all(self.start(size, config, *arguments, **more))

    def must_run_ranks(self, size, config, *arguments, **more):
        done = self.run_ranks(size, config, *arguments, **more)
        for rank, process in enumerate(done):
            self.assertEqual(process.returncode, 0, f"rank {rank}: {process.stderr}")
        return done

    def codes(self, done):
        return [process.returncode for process in done]

    def assert_refused(self, done, codes, *texts):
        self.assertEqual(self.codes(done), codes, [process.stderr for process in done])
        for process in done:
            for text in texts:
                self.assertIn(text, cli.error_of(process))
        self.assertFalse(self.run_dir.exists())

    def start_with_one_on_a_poor_machine(self, poor_rank, config, run_dir, **shortage):
        """Two ranks, one of them under tests/support/poor_machine.cpp with these variables."""
        return cli.start_ranks(2, "train", config, "--run-dir", run_dir,
                               environments_of={poor_rank: cli.poor_machine(**shortage)})


class RanksTest(RanksCase):
    def test_a_language_model_counts_in_the_steps_that_rank_0_logs(self):
        config = cli.write_config(self.folder / "text.toml", device={"list": "cpu", "threads": 1}, model={"name": "gpt2", "size": "nano"},
                                  data={"name": "toy", "samples": 64}, train={"steps": 7, "global_batch": 16}, log={"every": 3})
        self.must_run_ranks(2, config, arguments_of={1: ("--set", "log.every=5")})
        self.assertEqual([line["step"] for line in cli.events(self.run_dir, "step") if "top1" in line], [3, 6, 7])
        self.assertTrue(all("top1" in line for line in cli.events(self.run_dir, "eval")))
        epochs = cli.events(self.run_dir, "epoch")
        self.assertTrue(epochs and all("loss" in line and "top1" not in line for line in epochs), "it counted in some steps only")

    def test_processes_replicas_and_stages_train_like_one_process(self):
        one = self.folder / "one"
        cli.must_run("train", configuration(self.folder), "--run-dir", one)
        shapes = ((2, 2, 2), (3, 1, 2), (2, 1, 1), (4, 1, 1))
        for size, replicas, stages in long_tests.some(shapes[:1], shapes, "the others have less in them"):
            with self.subTest(f"{size} processes x {replicas} replicas x {stages} stages"):
                config = configuration(self.folder, pipeline={"stages": stages, "chunks": stages},
                                       replicas={"local": replicas})
                done = self.must_run_ranks(size, config)
                self.assertEqual([line[:4] for line in curve(self.run_dir)], [line[:4] for line in curve(one)])
                for (step, *_, loss), (*_, expected) in zip(curve(self.run_dir), curve(one)):
                    self.assertAlmostEqual(loss, expected, delta=1e-9 * expected, msg=f"step {step}")
                for mine, expected in zip(cli.events(self.run_dir, "eval"), cli.events(one, "eval")):
                    for key in ("epoch", "step", "top1", "top5", "samples"):
                        self.assertEqual(mine[key], expected[key], key)
                    self.assertAlmostEqual(mine["loss"], expected["loss"], delta=1e-9 * expected["loss"])
                self.assertIn(f"all {size} processes ended with bit-identical parameters", done[0].stderr)
                self.assertEqual({line["replicas"] for line in cli.events(self.run_dir, "step")}, {size * replicas})
                shutil.rmtree(self.run_dir)

    def test_evaluation_of_a_checkpoint_does_not_depend_on_the_replicas(self):
        config = configuration(self.folder, model={"name": "resnet8", "dropout": 0},
                               data={"samples": 330}, train={"steps": 8, "precision": "fp32", "eval_batch": 32})
        self.must_run_ranks(2, config)
        at_the_end = cli.events(self.run_dir, "eval")[-1]
        self.assertEqual(at_the_end["samples"], 66)
        for replicas in long_tests.some((4,), (1, 2, 4), "the most replicas"):
            done = cli.must_run("eval", config, "--checkpoint", self.run_dir, "--json", "--set", f"replicas.local={replicas}")
            counts = json.loads(done.stdout)
            for key in ("top1", "top5", "samples"):
                self.assertEqual(counts[key], at_the_end[key], key)
            self.assertAlmostEqual(counts["loss"], at_the_end["loss"], delta=1e-5)

    def test_options_say_which_ranks_they_are_and_only_rank_0_writes(self):
        folders = [self.folder / str(rank) for rank in range(2)]
        for folder in folders:
            folder.mkdir()
        config = configuration(self.folder).resolve()
        # No launcher says which ranks they are, but the command line.
        words = ("--world-size", 2, "--init", f"tcp://127.0.0.1:{cli.free_port()}", "--if-name", "lo")
        done = cli.finish_all([cli.start("train", config, "--json", "--rank", rank, *words, cwd=folders[rank])
                               for rank in range(2)])
        self.assertEqual(self.codes(done), [0, 0], [process.stderr for process in done])
        self.assertEqual(len(list((folders[0] / "runs").iterdir())), 1)
        self.assertEqual(list(folders[1].iterdir()), [])
        self.assertEqual(json.loads(done[1].stdout), {"rank": 1, "outcome": "done", "steps": STEPS})

    def test_a_signal_to_any_rank_stops_all_after_the_same_step_and_the_run_resumes(self):
        whole = self.folder / "whole"
        # An optimizer whose number of steps matters.
        config = configuration(self.folder, pipeline={"stages": 2}, train={"optimizer": "adamw", "lr": 0.003})
        self.must_run_ranks(2, config)
        self.run_dir.rename(whole)
        for rank in long_tests.some((1,), (1, 0), "rank 0 is signalled"):
            processes = self.start(2, config, "--resume", "auto")
            done_before = max(cli.checkpoints(self.run_dir), default=0)
            cli.wait_until(lambda: len(self.steps_so_far()) > done_before + 1, processes[0])
            processes[rank].send_signal(signal.SIGTERM)
            done = cli.finish_all(processes)
            self.assertEqual(self.codes(done), [130, 130], [process.stderr for process in done])
            at = max(cli.checkpoints(self.run_dir))
            for process in done:
                self.assertIn(f"after step {at} of {STEPS}", cli.error_of(process))
            self.assertEqual(len(self.steps_so_far()), at)
        self.must_run_ranks(2, config, "--resume", "auto")
        self.assertEqual(curve(self.run_dir), curve(whole))
        for name in ("model.safetensors", "optimizer.safetensors"):
            mine, expected = (cli.checkpoints(run)[STEPS] / name for run in (self.run_dir, whole))
            self.assertEqual(mine.read_bytes(), expected.read_bytes(), name)

    @long_tests.only("app_resume leaves a finished run of one process as it is in CI")
    def test_a_finished_run_is_left_as_it_is(self):
        config = configuration(self.folder, train={"steps": EVERY})
        self.must_run_ranks(2, config)
        self.assertEqual(self.codes(self.run_ranks(2, config, "--resume", "auto")), [0, 0])

    def steps_so_far(self):
        try:
            return curve(self.run_dir)
        except ValueError:  # read while the last line was being written
            return []

    def test_another_number_of_processes_goes_on_with_the_same_curve(self):
        whole = self.folder / "whole"
        config = configuration(self.folder)
        cli.must_run("train", config, "--run-dir", whole)
        stopped = self.start(2, config)
        cli.wait_until(lambda: len(self.steps_so_far()) > 5, stopped[0])
        stopped[1].send_signal(signal.SIGINT)
        self.assertEqual(self.codes(cli.finish_all(stopped)), [130, 130])
        self.must_run_ranks(3, config, "--resume", "auto")
        self.assertEqual([line[:4] for line in curve(self.run_dir)], [line[:4] for line in curve(whole)])
        for (*_, loss), (*_, expected) in zip(curve(self.run_dir), curve(whole)):
            self.assertAlmostEqual(loss, expected, delta=1e-9 * expected)

    def test_a_key_that_differs_is_named(self):
        done = self.run_ranks(2, configuration(self.folder), arguments_of={1: ["--set", "train.lr=0.2"]})
        self.assert_refused(done, [2, 2], "train.lr is 0.2 in rank 1, but 0.05 in rank 0")

    def test_keys_of_a_machine_may_differ(self):
        self.must_run_ranks(2, configuration(self.folder),
                            arguments_of={1: ["--set", "data.workers=0", "--set", "device.threads=2",
                                              "--set", "log.lines=full"]})

    def check_that_chunks_are_chosen_where_one_rank_has_a_limit(self, **pipeline):
        config = configuration(self.folder, model={"name": "resnet8", "dropout": 0},
                               train={"deterministic": False, "precision": "fp32", "steps": 2},
                               pipeline={"chunks": "auto", **pipeline})
        for rank in long_tests.some((1,), (0, 1), "the rank that does not choose"):
            with self.subTest(rank_with_a_limit=rank):
                done = self.must_run_ranks(2, config, arguments_of={rank: ["--set", "device.memory_limit=\"4GiB\""]})
                self.assertIn("timing steps without update", done[0].stderr)
                shutil.rmtree(self.run_dir)

    @long_tests.only("the next test has a limit of one rank, too")
    def test_a_memory_limit_of_one_rank_alone_holds_for_the_chunks_of_all(self):
        self.check_that_chunks_are_chosen_where_one_rank_has_a_limit()

    def test_the_chunks_that_all_try_begin_where_rank_0_begins(self):
        """Where recomputation is open, a limit settles it, and with it the least number that fits."""
        self.check_that_chunks_are_chosen_where_one_rank_has_a_limit(stages=2, recompute="auto")

    def test_a_rank_that_fails_says_why_and_the_others_name_it(self):
        config = configuration(self.folder, model={"name": "mlp", "image_size": 0}, data={"name": "fashion_mnist"})
        done = self.run_ranks(2, config, arguments_of={1: ["--set", "data.path=/nowhere"]})
        self.assertEqual(self.codes(done), [5, 3], [process.stderr for process in done])
        self.assertIn("rank 1 (host ", cli.error_of(done[0]))
        self.assertIn("/nowhere", cli.error_of(done[0]))
        self.assertIn("/nowhere", cli.error_of(done[1]))

    def test_a_rank_whose_configuration_is_refused_is_not_waited_for(self):
        for wrong in long_tests.some((1,), (0, 1), "rank 0 is the wrong one"):
            begun = time.monotonic()
            done = self.run_ranks(2, configuration(self.folder), arguments_of={wrong: ["--set", "train.lrx=0.1"]})
            self.assertEqual(self.codes(done), [2 if rank == wrong else 5 for rank in range(2)])
            self.assertIn("train.lrx", cli.error_of(done[1 - wrong]))
            self.assertLess(time.monotonic() - begun, 60, "it was waited for as long as connect_timeout_s says, 300 s")

    def test_what_is_wrong_with_rank_0_alone_is_said_before_anybody_is_waited_for(self):
        config = configuration(self.folder)
        done = cli.run("train", config, "--run-dir", self.run_dir, "--set", "data.name=nothing",
                       env=cli.rank_environment(0, 2, cli.free_port()))
        self.assert_refused([done], [2], "data.name", "nothing")
        self.assertNotIn("waiting for", done.stderr)

    def test_nobody_at_the_address_and_a_port_in_use(self):
        config = configuration(self.folder, replicas={"connect_timeout_s": 2})
        port = cli.free_port()
        alone = cli.run("train", config, "--run-dir", self.run_dir, env=cli.rank_environment(1, 2, port))
        self.assert_refused([alone], [5], "rank 1 cannot reach rank 0", f"127.0.0.1:{port}")
        self.assertEqual(len(alone.stderr.splitlines()), 2, alone.stderr)  # that it goes there, and that nobody is there
        with socket.socket() as other:
            other.bind(("127.0.0.1", port))
            other.listen()
            in_use = cli.run("train", config, "--run-dir", self.run_dir, env=cli.rank_environment(0, 2, port))
        self.assert_refused([in_use], [2], f"port {port}", "in use")

    def test_shares_of_unequal_size_with_batch_norm(self):
        config = configuration(self.folder, model={"name": "resnet8", "dropout": 0}, data={"samples": 17},
                               train={"precision": "fp32", "steps": 4}, pipeline={"chunks": 2})
        self.must_run_ranks(2, config)
        self.assertEqual([line["samples"] for line in cli.events(self.run_dir, "step")], [16, 1, 16, 1])

    @long_tests.only("CI signals one rank")
    def test_signals_to_all_ranks_at_different_moments_are_one_stop(self):
        processes = self.start(3, configuration(self.folder, train={"steps": 1000000}, checkpoint={"every_steps": 0}))
        cli.wait_until(lambda: len(self.steps_so_far()) > 1, processes[0])
        processes[0].send_signal(signal.SIGTERM)
        for process in processes[1:]:  # those who have stopped already wait for rank 0's checkpoint
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
        self.assertEqual(self.codes(cli.finish_all(processes)), [130, 130, 130])
        self.assertEqual(max(cli.checkpoints(self.run_dir)), len(self.steps_so_far()))

    def test_an_interface_that_is_not_there(self):
        done = cli.run("train", configuration(self.folder), "--if-name", "nosuch0", env=cli.rank_environment(1, 2, cli.free_port()))
        self.assert_refused([done], [2], "--if-name nosuch0")

    @long_tests.only("two processes for one refusal")
    def test_nccl_needs_gpus(self):
        done = self.run_ranks(2, configuration(self.folder, replicas={"backend": "nccl"}))
        self.assertEqual(self.codes(done)[0], 2, done[0].stderr)
        self.assertIn('replicas.backend = "nccl" cannot carry', cli.error_of(done[0]))

    @long_tests.only("10 s of waiting")
    def test_a_stranger_on_the_port_and_an_unknown_host(self):
        config = configuration(self.folder, replicas={"connect_timeout_s": 2})
        with socket.socket() as stranger:  # accepts, and says nothing
            stranger.bind(("127.0.0.1", 0))
            stranger.listen()
            port = stranger.getsockname()[1]
            done = cli.run("train", config, env=cli.rank_environment(1, 2, port))
        self.assert_refused([done], [5], "did not answer as rank 0 of Sluice", f"127.0.0.1:{port}")
        unknown = cli.run("train", config, "--rank", 1, "--world-size", 2, "--init", "tcp://no-such-host.invalid:1")
        self.assert_refused([unknown], [2], "cannot resolve the host name 'no-such-host.invalid'", "check --init")

    @long_tests.only("liveness_process_test has it in CI")
    def test_a_rank_that_dies_while_others_are_awaited_is_named(self):
        config = configuration(self.folder)
        port = cli.free_port()
        first, second = (cli.start("train", config, "--run-dir", self.run_dir, env=cli.rank_environment(rank, 3, port))
                         for rank in (0, 1))
        self.assertIn("connecting to rank 0", second.stderr.readline())
        time.sleep(2)
        second.kill()
        begin = time.monotonic()
        done = cli.finish(first)
        self.assertLess(time.monotonic() - begin, 30)
        self.assert_refused([done], [5], "rank 1 connected to 127.0.0.1")
        cli.finish(second)

    def test_rank_0_may_come_late(self):
        config = configuration(self.folder)
        port = cli.free_port()
        second = cli.start("train", config, "--run-dir", self.run_dir, env=cli.rank_environment(1, 2, port))
        time.sleep(2)
        first = cli.start("train", config, "--run-dir", self.run_dir, env=cli.rank_environment(0, 2, port))
        done = cli.finish_all([first, second])
        self.assertEqual(self.codes(done), [0, 0], [process.stderr for process in done])
        meets, is_there, *trains = done[1].stderr.splitlines()
        self.assertIn("rank 1 of 2: connecting to rank 0 at 127.0.0.1", meets)
        self.assertIn("rank 1 of 2: all processes are connected", is_there)
        self.assertEqual(len(trains), 5, "a line an epoch, and one at the end")

    def test_too_few_samples_for_the_replicas(self):
        done = self.run_ranks(2, configuration(self.folder, train={"global_batch": 1}))
        for process in done:
            self.assertIn(process.returncode, (2, 5), process.stderr)
        self.assertIn("train.global_batch = 1 is less than the 2 replicas", cli.error_of(done[0]))

    def test_a_diverging_run_ends_with_6_in_every_rank(self):
        config = configuration(self.folder, train={"lr": 1e30, "precision": "fp32"})
        done = self.run_ranks(2, config)
        self.assertEqual(self.codes(done), [6, 6], [process.stderr for process in done])

    def test_gradients_in_bfloat16_are_half_the_bytes_and_nearly_the_run(self):
        config = configuration(self.folder, model={"dropout": 0.0}, train={"precision": "fp32", "lr": 0.01})
        self.must_run_ranks(2, config)
        full = cli.events(self.run_dir, "step")
        shutil.rmtree(self.run_dir)
        self.must_run_ranks(2, config, "--set", "replicas.bucket_type=bf16", "--set", "replicas.bucket_mb=0.05")
        rounded = cli.events(self.run_dir, "step")
        self.assertEqual(rounded[0]["sync_bytes"] * 2, full[0]["sync_bytes"])
        self.assertEqual(rounded[0]["loss"], full[0]["loss"])  # no gradient has been used yet
        differences = [abs(one["loss"] - other["loss"]) for one, other in zip(rounded, full, strict=True)]
        self.assertGreater(max(differences), 0)
        self.assertLess(max(differences), 0.02)

    def test_a_parameter_server_takes_no_bfloat16_buckets(self):
        done = cli.run("config", configuration(self.folder, replicas={"sync": "ps", "bucket_type": "bf16"}, train={"steps": 4}))
        self.assertEqual(done.returncode, 2)
        self.assertIn("set ps.push_compression", cli.error_of(done))

    def test_a_rank_that_is_refused_a_thread_ends_all_and_says_so(self):
        config = configuration(self.folder, pipeline={"stages": 2, "partition": [5, 5]},
                               replicas={"connect_timeout_s": 10})
        # With 9 the second of the two of a Gloo group is refused, which never comes back: given up after 30 s.
        started = {threads: self.start_with_one_on_a_poor_machine(1, config, self.folder / str(threads),
                                                                  SLUICE_TEST_THREADS=str(threads))
                   for threads in long_tests.some((8,), (1, 8, 9, 10), "one that waits less")}
        for threads, processes in started.items():
            with self.subTest(threads=threads):
                done = cli.finish_all(processes)
                self.assertEqual(done[0].returncode, 5, done[0].stderr)
                self.assertIn(done[1].returncode, (4, 5), done[1].stderr)
                self.assertIn("ulimit -u", cli.error_of(done[1]))


class ByTheClockTest(RanksCase):
    """What a machine that is busy with something else would change."""

    def test_a_save_longer_than_a_step_may_take_is_no_hang_in_a_synchronised_batch_norm(self):
        step_timeout_s = 4
        config = configuration(self.folder, model={"name": "resnet8", "dropout": 0}, data={"samples": 32},
                               train={"precision": "fp32", "steps": 3, "step_timeout_s": step_timeout_s},
                               pipeline={"batch_norm": "sync"}, checkpoint={"every_steps": 2, "at_end": False})
        done = cli.finish_all(self.start_with_one_on_a_poor_machine(0, config, self.run_dir, SLUICE_TEST_FSYNC_S="0.6"))
        self.assertEqual(self.codes(done), [0, 0], [process.stderr for process in done])
        saves = [line["save_s"] for line in cli.events(self.run_dir, "checkpoint")]
        self.assertGreater(min(saves), 1.2 * step_timeout_s)  # or this test shows nothing

    def test_a_missing_rank_is_named(self):
        config = configuration(self.folder, replicas={"connect_timeout_s": 2})
        port = cli.free_port()
        done = cli.finish_all([cli.start("train", config, "--run-dir", self.run_dir, env=cli.rank_environment(rank, 3, port))
                               for rank in (0, 2)])
        self.assert_refused(done, [5, 5], "rank 1 of 3 did not connect to 127.0.0.1")


if __name__ == "__main__":
    unittest.main(verbosity=2)
