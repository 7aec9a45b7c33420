#!/usr/bin/env python3
"""Runs with several parameter servers (ps.servers): what they learn together, and what becomes of one that is killed,
stopped or missing. Exits 77 without safetensors.

    several_servers_test.py [unittest options]        SLUICE_BINARY names the binary
    SLUICE_LONG_TESTS=1                               all of them
"""

import pathlib
import resource
import signal
import time
import unittest

import long_tests
import sluice_cli as cli
from server_runs import BATCH, SHORT, SLOW, ServerRuns, configuration

import numpy
from safetensors.numpy import load_file

# At which a server kills itself, one process of it after the other.
MOMENTS_OF_SHARDS = ("part-written:4", "step-written:5", "step-committed:3", "record-half-written:6", "shard-log-begun:2")
MOMENTS_OF_LEAD = ("update-decided:4", "push-acknowledged:3", "update-written:5", "log-begun:2", "push-written:2")


class SeveralServersTest(ServerRuns):
    def configure(self, servers, ps, **tables):
        address = ",".join(f"127.0.0.1:{cli.free_port()}" for _ in range(servers))
        return configuration(self.folder, {"servers": servers, "address": address, **ps}, **tables)

    def finish_killed(self, process):
        done = cli.finish(process)
        self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
        return done.stderr

    def test_three_servers_learn_what_one_device_learns(self):
        """Clip norm over all of their shards; weights and optimizer of all in a checkpoint."""
        plain = self.folder / "plain"
        cli.must_run("train", configuration(self.folder, None, replicas={"sync": "none"}, train={"global_batch": 2 * BATCH}),
                     "--run-dir", plain)
        config = self.configure(3, {"policy": "bsp", "shards": 2})
        done = self.finish_well(self.start_all(config, 5))
        self.assert_learnt_alike(self.folder / "run", plain)
        self.assert_records_add_up(self.folder / "run")
        for server in (1, 2):
            self.assertIn(f"server {server}: the run is complete after update 9", done[server].stderr)

    def test_servers_that_die_at_each_moment_change_no_bit(self):
        """One worker, whose pushes have one order. The one that decides, and the one that does not, in turns."""
        tables = {"train": {"steps": 40}, "checkpoint": {"every_steps": 6}}
        config = self.configure(2, {"policy": "bsp", "log": "process"}, **tables)
        self.finish_well(self.start_all(config, 3, run_dir="whole"))
        moments = {1: list(long_tests.some(MOMENTS_OF_SHARDS[:2], MOMENTS_OF_SHARDS, "a server of shards dies five times")),
                   0: list(long_tests.some(MOMENTS_OF_LEAD[:2], MOMENTS_OF_LEAD, "the lead server dies five times"))}

        def start(rank, *arguments):
            at = moments[rank].pop(0) if moments[rank] else None
            return self.start(config, rank, 3, *arguments, environment={"SLUICE_KILL_AT": at} if at else {})

        kills = sum(map(len, moments.values()))
        processes = [start(0), start(1), self.start(config, 2, 3)]
        said = ""
        for _ in range(kills):
            cli.wait_until(lambda: any(processes[rank].poll() is not None for rank in (0, 1)), processes[2])
            dead = next(rank for rank in (0, 1) if processes[rank].poll() is not None)
            said += self.finish_killed(processes[dead])
            processes[dead] = start(dead, *(["--resume", "auto"] if dead == 0 else []))
        done = self.finish_well(processes)
        self.assertIn("has come back, with its shards after update", said + done[0].stderr)
        self.assert_same_bits(self.folder / "run", self.folder / "whole")
        self.assert_records_add_up(self.folder / "run")
        self.assertFalse(list((self.folder / "run/servers/1").glob("*.log")), "a run that is done needs no log")
        self.assertIn("server 1: the run is complete", (self.folder / "run/servers/1/log.txt").read_text())
        self.assertRegex(said + done[0].stderr, "no checkpoint yet, so the run starts from the log in .*run/pushes")

    def test_a_run_that_is_not_saved_at_its_end_is_done_at_all_servers(self):
        config = self.configure(2, {"policy": "bsp", "log": "process"}, train={"steps": 6},
                                checkpoint={"every_steps": 4, "at_end": False})
        done = self.finish_well(self.start_all(config, 3))
        self.assertIn("server 1: the run is complete after update 6", done[1].stderr)
        self.assertEqual(max(cli.checkpoints(self.folder / "run")), 4)
        self.assertEqual(cli.column(self.folder / "run", "step", "eval")[-1], 6)
        for folder in ("run/pushes", "run/servers/1"):
            self.assertFalse(list((self.folder / folder).glob("*.log")), "a run that is done needs no log")

    def test_without_a_log_the_run_ends_and_goes_on_from_its_checkpoint(self):
        config = self.configure(2, {"policy": "asp", **SLOW}, train={"steps": 30}, checkpoint={"every_steps": 4})
        processes = self.start_all(config, 4)
        self.wait_for_step(10, processes[0])
        processes[1].kill()
        processes[1].wait()
        processes[1] = self.start(config, 1, 4)
        server = cli.finish(processes[0])
        self.assertEqual(server.returncode, 5, server.stderr)
        self.assertRegex(cli.error_of(server), r"server 1 \(127.0.0.1:\d+\) was started again and has lost its shards")
        for worker in cli.finish_all(processes[2:]):
            self.assertEqual(worker.returncode, 5, worker.stderr)
        cli.finish(processes[1])
        self.finish_well(self.start_all(config, 4, "--resume", "auto"))
        self.assertEqual(cli.column(self.folder / "run", "step"), list(range(1, 31)))
        self.assert_records_add_up(self.folder / "run")

    def test_a_launch_whose_run_is_done_ends_at_once(self):
        config = self.configure(2, {"policy": "bsp"}, train={"steps": 4})
        self.finish_well(self.start_all(config, 4))
        records = (self.folder / "run/metrics.jsonl").read_bytes()
        for server_comes in long_tests.some(("last",), ("first", "last"), "the lead server comes first"):
            with self.subTest(server_comes):
                ranks = (0, 3, 2, 1) if server_comes == "first" else (1, 2, 3, 0)
                done = self.finish_well([self.start(config, rank, 4, "--resume", "auto") for rank in ranks])
                said = {rank: process.stderr for rank, process in zip(ranks, done)}
                self.assertIn("is complete after 4 steps", said[0])
                self.assertIn("server 1: the run was already complete", said[1])
                self.assertIn("worker 1: the run was complete before this worker connected", said[3])
        self.assertEqual((self.folder / "run/metrics.jsonl").read_bytes(), records)

    @long_tests.only("a run that is done is over for all that come later in CI, too")
    def test_a_run_that_was_stopped_in_its_last_evaluation_is_over_for_all_others(self):
        config = self.configure(2, {"policy": "bsp"}, train={"steps": 3, "eval_batch": 1}, data={"samples": 20000},
                                replicas={"connect_timeout_s": 40})
        run_dir = self.folder / "run"
        first = self.start_all(config, 3)
        cli.wait_until(lambda: 3 in cli.checkpoints(run_dir), first[0])
        self.finish_well(first[1:])
        self.assertEqual(cli.stop(first[0]).returncode, 130)
        again = self.start_all(config, 3, "--resume", "auto")
        server, worker = self.finish_well(again[1:])
        self.assertIn("server 1: the run was already complete", server.stderr)
        self.assertIn("worker 0: the run was complete before this worker connected", worker.stderr)
        self.assertEqual(cli.events(run_dir, "eval"), [], "server 0 has its evaluation still to do")
        self.assertEqual(cli.stop(again[0]).returncode, 130)

    def test_who_is_stopped_while_another_server_is_dead_does_not_say_that_it_has_saved(self):
        for dead, stopped in long_tests.some([(1, 0)], [(1, 0), (2, 1)], "another server than the lead is stopped"):
            with self.subTest(dead=dead, stopped=stopped):
                run_dir = f"run{stopped}"
                config = self.configure(3, {"policy": "asp", **SLOW}, train={"steps": 100000}, replicas=SHORT)
                processes = self.start_all(config, 4, run_dir=run_dir)
                self.wait_for_step(4, processes[0], run_dir)
                processes[dead].kill()
                processes[stopped].terminate()
                done = cli.finish_all(processes)
                codes = [-signal.SIGKILL if rank == dead else 5 for rank in range(4)]
                self.assertEqual([process.returncode for process in done], codes, done[0].stderr)
                self.assertRegex(cli.error_of(done[0]), rf"server {dead} \(127.0.0.1:\d+\) has been silent for 6")
                self.assertEqual(cli.checkpoints(self.folder / run_dir), {})

    @long_tests.only("7 s of waiting")
    def test_a_server_that_waits_for_another_one_shows_its_workers_that_it_lives(self):
        config = self.configure(2, {"policy": "bsp"}, train={"steps": 4})
        log, workers_log = self.folder / "run/log.txt", self.folder / "worker.txt"
        first = self.start(config, 0, 3)
        worker = self.start(config, 2, 3, "--set", "replicas.connect_timeout_s=3", log=workers_log)
        cli.wait_until(lambda: log.exists() and "waiting for server 1" in log.read_text(), first)
        cli.wait_until(lambda: "connecting to the parameter server" in workers_log.read_text(), first)
        time.sleep(5)
        self.assertIsNone(worker.poll(), "it would have given up an own server that says nothing")
        self.finish_well([first, worker, self.start(config, 1, 3)])

    @long_tests.only("app_resume leaves the records of a run that cannot be resumed in CI")
    def test_a_resume_that_does_not_begin_cuts_no_records(self):
        config = self.configure(2, {"policy": "asp", "log": "process", **SLOW}, train={"steps": 60},
                                checkpoint={"every_steps": 5})
        processes = self.start_all(config, 3)
        self.wait_for_step(12, processes[0])
        for process in processes:
            process.kill()
            process.wait()
        records = (self.folder / "run/metrics.jsonl").read_bytes()
        at_once = ("--resume", "auto", "--set", "replicas.connect_timeout_s=2")
        alone = cli.finish(self.start(config, 0, 3, *at_once))
        self.assertEqual(alone.returncode, 5, alone.stderr)
        self.assertRegex(cli.error_of(alone), r"server 1 \(127.0.0.1:\d+\) has not answered within 2.0 s")
        self.assertEqual((self.folder / "run/metrics.jsonl").read_bytes(), records)
        (self.folder / "run/servers").rename(self.folder / "lost")
        without = [self.start(config, 0, 3, *at_once), self.start(config, 1, 3)]
        first, _ = cli.finish_all(without)
        self.assertEqual(first.returncode, 7, first.stderr)
        self.assertRegex(cli.error_of(first), r"has no shards, but the run is at update \d+; start server 1 with its previous "
                                              r"--run-dir, which has them in servers/1; or, .* --resume RUN/checkpoints/step-N")
        self.assertEqual((self.folder / "run/metrics.jsonl").read_bytes(), records)

    @long_tests.only("a worker waits for 4 s")
    def test_addresses_in_another_order_are_named(self):
        config = self.configure(2, {"policy": "asp"})
        addresses = config.read_text().split('address = "')[1].split('"')[0].split(",")
        servers = [self.start(config, 0, 3), self.start(config, 1, 3)]
        worker = cli.finish(self.start(config, 2, 3, "--set", "ps.address=" + ",".join(reversed(addresses)),
                                       "--set", "replicas.connect_timeout_s=4"))
        self.assertEqual(worker.returncode, 5, worker.stderr)
        first, second = (cli.stop(server) for server in servers)
        self.assertRegex(first.stderr, r"came to server 0 \(127.0.0.1:\d+\); check the order of ps.address at the workers")
        self.assertRegex(second.stderr, r"a greeting of worker 0 \(.*\) came to server 1 \(127.0.0.1:\d+\), which keeps shards "
                                        r"only; check the order of ps.address at that worker")

    def test_who_is_stopped_has_its_weights_saved(self):
        for rank in long_tests.some([1], [0, 1], "the lead server is stopped"):
            with self.subTest(rank=rank):
                run_dir = f"run{rank}"
                config = self.configure(2, {"policy": "asp", **SLOW}, train={"steps": 100000})
                processes = self.start_all(config, 3, run_dir=run_dir)
                self.wait_for_step(8, processes[0], run_dir)
                processes[rank].terminate()
                done = cli.finish_all(processes)
                for process in done:
                    self.assertEqual(process.returncode, 130, process.stderr)
                self.assertEqual(cli.column(self.folder / run_dir, "outcome", "summary"), ["interrupted"])
                if rank == 1:
                    self.assertRegex(cli.error_of(done[0]), r"server 1 \(127.0.0.1:\d+\) was stopped by SIGTERM \(after step")
                steps = cli.column(self.folder / run_dir, "step")
                self.assertEqual(list(cli.checkpoints(self.folder / run_dir)), [steps[-1]])
                self.assert_records_add_up(self.folder / run_dir)

    @long_tests.only("CI stops a server between two evaluations")
    def test_a_server_that_is_stopped_during_a_long_evaluation_has_its_weights_saved(self):
        """It does not wait for the end of the evaluation, which may be longer than anybody may be silent."""
        config = self.configure(2, {"policy": "asp", **SLOW}, train={"steps": 100000, "eval_every_steps": 8, "eval_batch": 1},
                                data={"samples": 20000}, replicas=SHORT)
        processes = self.start_all(config, 3)
        self.wait_for_step(8, processes[0])
        processes[1].terminate()
        stopped = cli.finish(processes[1])
        self.assertEqual(stopped.returncode, 130, stopped.stderr)
        run_dir = self.folder / "run"
        self.assertEqual(cli.events(run_dir, "eval"), [], "it is still under way")
        first, worker = cli.finish_all([processes[0], processes[2]])
        self.assertEqual((first.returncode, worker.returncode), (130, 130), first.stderr)
        self.assertRegex(cli.error_of(first), r"server 1 \(127.0.0.1:\d+\) was stopped by SIGTERM \(after step")
        self.assertEqual(list(cli.checkpoints(run_dir)), [cli.column(run_dir, "step")[-1]])

    @long_tests.only("app_server_log has a log that cannot be written in CI")
    def test_a_full_disk_at_a_server_is_told_to_all_and_nothing_is_lost(self):
        config = self.configure(2, {"policy": "asp", "log": "process"}, train={"steps": 40})

        def limit_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (6_000_000, resource.RLIM_INFINITY))

        first, second, worker = cli.finish_all([
            self.start(config, 0, 3), self.start(config, 1, 3, preexec_fn=limit_files), self.start(config, 2, 3)])
        what = r"cannot write .*run/servers/1/updates-\d+.log: File too large"
        self.assertEqual(second.returncode, 8, second.stderr)
        self.assertRegex(cli.error_of(second), what)
        for process in (first, worker):
            self.assertEqual(process.returncode, 5, process.stderr)
            self.assertRegex(cli.error_of(process), r"server 1 \(127.0.0.1:\d+\) has failed: " + what)
        self.assertRegex((self.folder / "run/log.txt").read_text(), what)
        before = cli.column(self.folder / "run", "loss")
        self.assertGreater(len(before), 2)
        self.finish_well(self.start_all(config, 3, "--resume", "auto"))
        self.assertEqual(cli.column(self.folder / "run", "loss")[:len(before)], before)
        self.assert_records_add_up(self.folder / "run")

    def test_servers_that_differ_end_the_run_before_it_begins(self):
        config = self.configure(2, {"policy": "asp"})
        processes = [self.start(config, 0, 3), self.start(config, 1, 3, "--set", "ps.shards=3"), self.start(config, 2, 3)]
        first, worker = cli.finish_all([processes[0], processes[2]])
        what = (r"server 1 \(127.0.0.1:\d+\) refuses server 0: ps.shards is 1 at server 0 \(.*\), but 3 at server 1 "
                r"\(127.0.0.1:\d+\); make them equal")
        self.assertEqual(first.returncode, 2, first.stderr)
        self.assertRegex(cli.error_of(first), what)
        self.assertEqual(worker.returncode, 5, worker.stderr)
        self.assertRegex(cli.error_of(worker), "the server has ended the run: " + what)
        self.assertRegex(cli.stop(processes[1]).stderr, r"server 0 \(.*\) was refused: ps.shards is 1")
        done = cli.run("train", config, "--run-dir", self.folder / "run", env=cli.rank_environment(0, 3, self.port))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("to continue it (or begin it, if it has no checkpoint yet) add --resume auto", cli.error_of(done))

    @long_tests.only("five processes that only start")
    def test_each_server_is_there_once(self):
        config = self.configure(2, {"policy": "asp", "placement": "servers"})
        place = ("--set", f"ps.address=127.0.0.1:{cli.free_port()},127.0.0.1:{cli.free_port()}")  # that is free

        def serve(*arguments, run_dir="run"):
            self.started.append(cli.start("serve", config, "--run-dir", self.folder / run_dir, *arguments))
            return self.started[-1]

        first = serve()
        log = self.folder / "run/log.txt"
        cli.wait_until(lambda: log.exists() and "waiting for server 1 (127.0.0.1:" in log.read_text(), first)
        third = serve("--server", "1", *place)
        log = self.folder / "run/servers/1/log.txt"
        cli.wait_until(lambda: log.exists() and "listening at" in log.read_text(), third)
        for process, error in (
                (serve(run_dir="other"), r"cannot listen at .* is in use; choose another port in ps.address"),
                (serve("--server", "1", *place), r"cannot listen at .* is in use; choose another port in ps.address"),
                (serve("--server", "1"), rf"run/servers/1 is in use by process {third.pid} .*its own --server number")):
            done = cli.finish(process)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(cli.error_of(done), error)
        self.assertFalse((self.folder / "other").exists())
        for process in (third, first):
            self.assertEqual(cli.stop(process).returncode, 130)

    @long_tests.only("CI stops a server of a run that trains")
    def test_a_server_that_is_stopped_while_another_is_waited_for_ends_the_run(self):
        config = self.configure(3, {"policy": "asp"})
        processes = [self.start(config, rank, 4) for rank in (0, 1, 3)]
        log = self.folder / "run/servers/1/log.txt"
        cli.wait_until(lambda: log.exists() and "the lead server is" in log.read_text(), processes[0])
        processes[1].terminate()
        done = cli.finish_all(processes)
        for process in done:
            self.assertEqual(process.returncode, 130, process.stderr)
            if process is not done[1]:
                self.assertRegex(cli.error_of(process), r"server 1 \(127.0.0.1:\d+\) was stopped by SIGTERM")

    @long_tests.only("app_server_processes prints plans in CI")
    def test_a_plan_names_the_servers(self):
        config = self.configure(2, {"policy": "asp"})
        plan = cli.finish(self.start(config, 0, 3, "--dry-run"))
        self.assertRegex(plan.stdout, r"2 parameter servers: asp, 1 worker, .*; at 127.0.0.1:\d+, 127.0.0.1:\d+\n")

    @long_tests.only("tests/ps/net/compressed_test.cpp has it in CI")
    def test_compressed_pushes_and_pulls_and_a_worker_that_is_stopped(self):
        """What its pushes have left out is kept for the next process of that worker, and taken once."""
        ps = {"policy": "asp", "push_compression": "topk", "topk_ratio": 0.2, "pull_compression": "bf16", **SLOW}
        config = self.configure(2, ps, train={"steps": 120})
        processes = self.start_all(config, 4)
        self.wait_for_step(15, processes[0])
        stopped = cli.stop(processes[3])
        self.assertEqual(stopped.returncode, 130, stopped.stderr)
        unsent = self.folder / "run/workers/1.unsent.safetensors"
        self.assertTrue(any(numpy.abs(values).max() > 0 for values in load_file(unsent).values()))
        left = unsent.read_bytes()
        processes[3] = self.start(config, 3, 4)
        done = self.finish_well(processes)
        self.assertIn("continuing with the residual of compressed pushes", done[3].stderr)
        self.assertFalse(unsent.exists())
        run_dir = self.folder / "run"
        losses = cli.column(run_dir, "loss")
        self.assertLess(sum(losses[-20:]), sum(losses[:20]))
        self.assert_records_add_up(run_dir)
        other = self.folder / "other/workers/1.unsent.safetensors"
        other.parent.mkdir(parents=True)
        other.write_bytes(left)
        done = self.finish_well(self.start_all(config, 4, "--set", "train.steps=6", run_dir="other"))
        self.assertRegex(done[3].stderr, r"other/workers/1.unsent.safetensors is the residual of compressed pushes in another run")
        self.assertEqual([file.name for file in other.parent.glob("*.unsent*")], [other.name + ".of-another-run-1"])
        self.assertEqual(pathlib.Path(f"{other}.of-another-run-1").read_bytes(), left)

    @long_tests.only("among the long tests")
    def test_servers_of_their_own_with_keys(self):
        cli.must_run("make-keys", self.folder / "keys")
        config = self.configure(2, {"policy": "ssp", "placement": "servers", "keys": str(self.folder / "keys"), "workers": 2})
        servers = [cli.start("serve", config, "--run-dir", self.folder / "run", "--server", str(server)) for server in (0, 1)]
        workers = [cli.start("train", config, "--rank", str(rank), "--world-size", "2") for rank in (0, 1)]
        self.started += servers + workers
        self.finish_well(servers + workers)
        self.assert_records_add_up(self.folder / "run")

    def test_what_does_not_fit_is_refused(self):
        config = self.configure(2, {"policy": "asp"})
        launches = ((["--set", "ps.servers=3"], 4, "ps.address has 2 addresses, but ps.servers = 3"),
                    (["--set", "ps.log=process"], 3, "needs a folder for the log of server 1; set it with --run-dir"),
                    ([], 2, "a launch of 2 processes has no workers, because ps.servers = 2"))
        for arguments, size, error in long_tests.some(launches[:2], launches, "a launch that is too small"):
            done = cli.run("train", config, *arguments, env=cli.rank_environment(1, size, self.port))
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(error, cli.error_of(done))
        for rank in long_tests.some((1,), (0, 1, 2), "the other ranks"):
            done = cli.run("train", config, "--run-dir", config, env=cli.rank_environment(rank, 3, self.port))
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(cli.error_of(done), r"is a file.*; choose another --run-dir")
        done = cli.run("serve", config, "--set", "ps.placement=servers", "--rank", "0", "--world-size", "2")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--rank", cli.error_of(done))
        servers = (("2", "--server 2 does not exist: ps.servers = 2, so use 0 or 1,"),
                   ("1", "--set", "ps.address=127.0.0.1:1,127.0.0.1:1", "names 127.0.0.1:1 twice"),
                   ("-1", "--server -1 does not exist: ps.servers = 2, so use 0 or 1,"),
                   ("1", "--set", "ps.address=127.0.0.1:1,", "has an empty entry"))
        for server, *change, error in long_tests.some(servers[:2], servers, "one of each kind"):
            done = cli.run("serve", config, "--set", "ps.placement=servers", "--server", server, *change)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(error, cli.error_of(done))


if __name__ == "__main__":
    unittest.main(verbosity=2)
