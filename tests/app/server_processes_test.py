#!/usr/bin/env python3
"""Runs whose parameter server and workers are processes: what they learn, and what becomes of those that are killed,
stopped, refused or late. Exits 77 without safetensors.

    server_processes_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import re
import shutil
import signal
import socket
import time
import unittest

import long_tests
import sluice_cli as cli
from server_runs import BATCH, SAMPLES, SHORT, SLOW, ServerRuns, configuration


class ServerProcessesTest(ServerRuns):
    def test_bulk_synchronous_workers_learn_what_one_device_learns(self):
        plain = self.folder / "plain"
        cli.must_run("train", configuration(self.folder, None, replicas={"sync": "none"}, train={"global_batch": 3 * BATCH}),
                     "--run-dir", plain)
        config = configuration(self.folder, {"policy": "bsp", "shards": 2})
        # Each worker cuts the model as it likes.
        shapes = [(), ("--set", "pipeline.stages=1", "--set", "pipeline.chunks=1"),
                  ("--set", "pipeline.stages=2", "--set", "pipeline.chunks=4", "--set", "pipeline.schedule=zb-h1"),
                  ("--set", "replicas.local=2")]
        self.finish_well([self.start(config, rank, 4, *shapes[rank]) for rank in range(4)])
        run_dir = self.folder / "run"
        self.assert_learnt_alike(run_dir, plain)
        self.assert_records_add_up(run_dir)
        for push in cli.events(run_dir, "push"):
            self.assertEqual((push["version"], push["staleness"]), (push["step"] - 1, 0))
            for name in ("compute_s", "send_s"):
                self.assertGreater(push[name], 0, name)

    def test_a_worker_that_is_killed_is_given_up_and_may_come_back(self):
        config = configuration(self.folder, {"policy": "asp", **SLOW}, train={"steps": 150, "eval_every_steps": 50})
        processes = self.start_all(config, 3)
        run_dir = self.folder / "run"
        self.wait_for_step(20, processes[0])
        processes[2].kill()
        processes[2].wait()
        self.wait_for_step(40, processes[0])
        processes[2] = self.start(config, 2, 3)
        done = self.finish_well(processes)
        self.assertEqual([line["step"] for line in cli.events(run_dir, "step")], list(range(1, 151)))
        lives = {push["life"] for push in cli.events(run_dir, "push") if push["worker"] == 1}
        self.assertEqual(lives, {1, 2})
        self.assertRegex(done[0].stderr, r"worker 1 \(.*\) has been given up: another process has taken its number")
        news = [(line["worker"], line["what"]) for line in cli.events(run_dir, "worker")]
        self.assertEqual([what for worker, what in news if worker == 1][:3], ["joined", "lost", "joined"])
        self.assert_records_add_up(run_dir)
        self.assertEqual(cli.column(run_dir, "step", "eval"), [50, 100, 150])

    @long_tests.only("it waits for 6 s; CI kills an asynchronous worker")
    def test_bulk_synchronous_workers_go_on_without_one_that_is_killed(self):
        config = configuration(self.folder, {"policy": "bsp", **SLOW}, train={"steps": 60}, replicas=SHORT)
        processes = self.start_all(config, 3)
        self.wait_for_step(10, processes[0])
        processes[1].kill()
        self.finish_well([processes[0], processes[2]])
        run_dir = self.folder / "run"
        sizes = cli.column(run_dir, "samples")
        self.assertEqual((sizes[0], sizes[-1]), (2 * BATCH, BATCH))
        self.assertIn("no sign of life for 6", [line["why"] for line in cli.events(run_dir, "worker")
                                                if line["what"] == "lost"][0])
        self.assert_records_add_up(run_dir)

    @long_tests.only("it waits, and its report is one more start")
    def test_waiting_for_the_first_worker_is_no_part_of_a_step(self):
        late_s = 1.5
        config = configuration(self.folder, {"policy": "asp"}, train={"steps": 3})
        server = self.start(config, 0, 2)
        run_dir = self.folder / "run"
        log = run_dir / "log.txt"
        cli.wait_until(lambda: log.exists() and "parameter server for" in log.read_text(), server)
        time.sleep(late_s)
        self.finish_well([server, self.start(config, 1, 2)])
        first = cli.events(run_dir, "step")[0]
        self.assertGreater(first["time_s"] - first["step_ms"] / 1000, late_s, "when it began")
        for name in ("syncs_per_s", "sync_bytes", "flops_per_s", "mfu"):
            self.assertIsNone(first[name], "the workers know")
        text = cli.must_run("report", run_dir).stdout
        for words in ("syncs/s", "synchronised", "GFLOP/s"):
            self.assertNotIn(words, text)

    @long_tests.only("it waits for 6 s; app_several_servers kills a server in CI")
    def test_without_its_server_a_worker_ends(self):
        config = configuration(self.folder, {"policy": "asp", **SLOW}, train={"steps": 100000}, replicas=SHORT)
        processes = self.start_all(config, 2)
        self.wait_for_step(5, processes[0])
        processes[0].kill()
        begin = time.monotonic()
        worker = cli.finish(processes[1])
        self.assertEqual(worker.returncode, 5, worker.stderr)
        self.assertIn("has been silent for 6", cli.error_of(worker))
        self.assertLess(time.monotonic() - begin, 20)

    def test_a_server_that_is_stopped_saves_and_tells_its_workers(self):
        config = configuration(self.folder, {"policy": "asp", **SLOW}, train={"steps": 100000})
        processes = self.start_all(config, 3)
        self.wait_for_step(10, processes[0])
        server = cli.stop(processes[0])
        workers = cli.finish_all(processes[1:])
        self.assertEqual(server.returncode, 130, server.stderr)
        for worker in workers:
            self.assertEqual(worker.returncode, 130, worker.stderr)
            self.assertIn("the server has ended the run: it was stopped", cli.error_of(worker))
        run_dir = self.folder / "run"
        steps = cli.column(run_dir, "step")
        self.assertEqual(list(cli.checkpoints(run_dir)), [steps[-1]], "of the last update that was made")
        self.assert_records_add_up(run_dir)

    def test_a_server_that_is_killed_goes_on_and_its_workers_with_it(self):
        kills = long_tests.some((25,), (25, 60, 95), "the server is killed three times")
        steps = kills[-1] + 65
        config = configuration(self.folder, {"policy": "asp", **SLOW}, train={"steps": steps},
                               checkpoint={"every_steps": 10})
        processes = self.start_all(config, 3)
        run_dir = self.folder / "run"
        for kill_at in kills:
            self.wait_for_step(kill_at, processes[0])
            processes[0].kill()
            processes[0].wait()
            processes[0] = self.start(config, 0, 3, "--resume", "auto")
        done = self.finish_well(processes)
        self.assertEqual([line["step"] for line in cli.events(run_dir, "step")], list(range(1, steps + 1)))
        self.assert_records_add_up(run_dir)
        self.assertEqual(len(cli.events(run_dir, "resume")), len(kills))
        self.assertIn("it has joined again", done[1].stderr)

    def test_bulk_synchronous_training_goes_on_where_it_was_stopped(self):
        """Weights, optimizer, rate and data: as one run that was not stopped."""
        whole, run_dir = self.folder / "whole", self.folder / "run"
        config = configuration(self.folder, {"policy": "bsp", "shards": 2}, train={"steps": 9})
        self.finish_well(self.start_all(config, 3, run_dir="whole"))
        half = configuration(self.folder, {"policy": "bsp", "shards": 2}, train={"steps": 9}, checkpoint={"every_steps": 4})
        slow = ["--set", "ps.induce=exponential", "--set", "ps.induce_shift_s=0.3"]
        processes = self.start_all(half, 3, *slow)
        self.wait_for_step(5, processes[0])
        for process in processes:
            process.kill()
        cli.finish_all(processes)
        self.assertIn(4, cli.checkpoints(run_dir))
        self.finish_well(self.start_all(half, 3, "--resume", "auto"))
        for name in ("step", "loss", "samples", "lr", "gradient_norm"):
            for ours, theirs in zip(cli.column(run_dir, name), cli.column(whole, name), strict=True):
                self.assertLessEqual(abs(ours - theirs), 1e-9 * max(abs(theirs), 1e-9), name)
        other = configuration(self.folder, None, replicas={"sync": "none"}, train={"global_batch": BATCH, "steps": 20})
        done = cli.run("train", other, "--run-dir", self.folder / "plain", "--resume", run_dir)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("it was written with a parameter server", cli.error_of(done))

    def test_a_worker_that_is_stopped_leaves_and_the_last_one_ends_the_run(self):
        config = configuration(self.folder, {"policy": "bsp", **SLOW}, train={"steps": 100000})
        processes = self.start_all(config, 3)
        self.wait_for_step(5, processes[0])
        self.assertEqual(cli.stop(processes[1]).returncode, 130)
        steps = len(cli.events(self.folder / "run", "step"))
        self.wait_for_step(steps + 5, processes[0])
        self.assertEqual(cli.stop(processes[2], signal.SIGINT).returncode, 130)
        server = cli.finish(processes[0])
        self.assertEqual(server.returncode, 5, server.stderr)
        self.assertRegex(cli.error_of(server), r"all workers have left.*after step \d+ of 100000\); checkpoint")
        self.assertEqual(len(cli.checkpoints(self.folder / "run")), 1)

    def test_workers_that_do_not_fit_are_refused(self):
        config = configuration(self.folder, {"policy": "asp", **SLOW}, train={"steps": 100000})
        processes = self.start_all(config, 2)
        self.wait_for_step(2, processes[0])
        refused = [((), "has a worker 0 already"), (("--set", "train.lr=0.5"), "train.lr is 0.5 at worker 0 ("),
                   (("--set", "train.seed=4"), "train.seed is 4 at worker 0 ("), (("--set", "data.samples=97"), "data.samples"),
                   (("--set", "model.size=tiny"), "model.size")]
        for words, text in long_tests.some(refused[:2], refused, "one of each kind"):
            with self.subTest(words):
                done = cli.finish(self.start(config, 1, 2, *words, run_dir="other"))
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(text, cli.error_of(done))
        server = cli.stop(processes[0])
        cli.finish(processes[1])
        self.assertRegex(server.stderr, r"worker 0 \(.*, process \d+\) was refused: train.lr is 0.5 at worker 0 \(.*\), but "
                                        r"0.003 at server 0 \(127.0.0.1:\d+\); make them equal")

    @long_tests.only("11 s of waiting")
    def test_anytime_workers_stop_in_time(self):
        limit = 0.25
        config = configuration(self.folder, {"policy": "amb", "time_limit_s": limit, "partitions": 4, "induce": "exponential",
                                             "induce_mean_s": 0.2}, train={"steps": 24}, pipeline={"chunks": 1})
        done = self.finish_well(self.start_all(config, 3, "--set", "log.every=1"))
        pushes = cli.events(self.folder / "run", "push")
        whole = [push for push in pushes if push["examples"] in (2, 4, 6, 8)]
        self.assertGreater(len(whole), len(pushes) / 2, "whole slices, but for the short leases at the end of an epoch")
        self.assertGreater(len({push["examples"] for push in pushes}), 1)
        for push in pushes:
            if push["sleep_s"] > limit:
                self.assertIn(push["examples"], (1, 2), "the first slice always runs")
        lines = re.findall(r"Sending \[(\d+)\] examples, compute_time \[([\d.]+)\], last_idle \[[\d.]+\], "
                           r"last_send \[[\d.]+\], sleep_time \[([\d.]+)\]", done[1].stderr)
        own = [push for push in pushes if push["worker"] == 0]
        self.assertEqual([int(line[0]) for line in lines][:len(own)], [push["examples"] for push in own])
        for line, push in zip(lines, own):
            self.assertAlmostEqual(float(line[2]), push["sleep_s"], 5)
        self.assert_records_add_up(self.folder / "run")

    def test_a_server_of_its_own_with_keys(self):
        keys = self.folder / "keys"
        cli.must_run("make-keys", keys)
        self.assertEqual((keys / "server.key").stat().st_mode & 0o77, 0)
        self.assertEqual(cli.run("make-keys", keys).returncode, 2, "keys are not overwritten")
        config = configuration(self.folder, {"policy": "bsp", "placement": "servers", "workers": 2, "keys": str(keys),
                                             "address": f"127.0.0.1:{self.port}"})
        server = cli.start("serve", config, "--run-dir", self.folder / "run")
        self.started.append(server)
        # Whoever has other keys, or none, is not heard.
        others = self.folder / "others"
        cli.must_run("make-keys", others)
        strangers = [self.start(config, 0, 2, "--set", f"ps.keys={folder}", "--set", "replicas.connect_timeout_s=2")
                     for folder in (others, "")]
        for stranger in cli.finish_all(strangers):
            self.assertEqual(stranger.returncode, 5, stranger.stderr)
            self.assertIn("no parameter server has answered", cli.error_of(stranger))
        workers = [self.start(config, rank, 2) for rank in range(2)]
        self.finish_well([server, *workers])
        self.assertEqual(cli.column(self.folder / "run", "samples"), [2 * BATCH] * 9)

    def test_without_keys_it_serves_its_own_machine_only(self):
        config = configuration(self.folder, {"policy": "asp", "placement": "servers", "address": "0.0.0.0:29777"})
        done = cli.run("serve", config, "--run-dir", self.folder / "run")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("needs keys", cli.error_of(done))
        alone = configuration(self.folder, None, replicas={"sync": "none"})
        done = cli.run("serve", alone, "--run-dir", self.folder / "run")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("sluice serve needs replicas.sync = \"ps\"", cli.error_of(done))
        damaged, mixed, taken = self.folder / "damaged", self.folder / "mixed", socket.create_server(("127.0.0.1", 0))
        self.addCleanup(taken.close)
        public = self.folder / "public"
        for keys in (damaged, self.folder / "others"):
            cli.must_run("make-keys", keys)
        for keys in (mixed, public):
            shutil.copytree(damaged, keys)
        (public / "server.key").unlink()
        (damaged / "server.key").write_text("short")
        (mixed / "server.pub").write_text((self.folder / "others/server.pub").read_text())
        refused = [(["--set", f"ps.keys={mixed}"], "do not belong together"),
                   (["--set", f"ps.address=127.0.0.1:{taken.getsockname()[1]}"], "cannot listen"),
                   (["--set", f"ps.keys={damaged}"], "is damaged"),
                   (["--set", "replicas.sync=none"], "[ps] is set, but replicas.sync=\"none\""),
                   (["--set", "ps.placement=rank0"], "ps.placement"), (["--set", "ps.address=nowhere"], "HOST:PORT"),
                   (["--set", "ps.keys=/nonexistent"], "cannot read the key"),
                   (["--set", f"ps.keys={public}"], "only server.pub; copy server.key from the folder")]
        for words, text in long_tests.some(refused[:3], refused, "one of each kind"):
            with self.subTest(words):
                done = cli.run("serve", config, "--run-dir", self.folder / "run", *words)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(text, cli.error_of(done))
        self.assertFalse((self.folder / "run").exists())

    def test_a_plan_is_printed_for_server_and_worker(self):
        config = configuration(self.folder, {"policy": "bsp"})
        for rank in long_tests.some((0, 1), (0, 1, 2), "one worker is as another"):
            plan = cli.finish(self.start(config, rank, 3, "--dry-run"))
            self.assertEqual(plan.returncode, 0, plan.stderr)
            self.assertIn("parameter server: bsp, 2 workers", plan.stdout)
            self.assertIn(f", {-(-SAMPLES // (2 * BATCH))} updates an epoch, ", plan.stdout)
        self.assertFalse((self.folder / "run").exists())

    def test_one_process_trains_by_itself(self):
        plain, alone = self.folder / "plain", self.folder / "alone"
        cli.must_run("train", configuration(self.folder, None, replicas={"sync": "none"}, train={"global_batch": BATCH}),
                     "--run-dir", plain)
        cli.must_run("train", configuration(self.folder, {"policy": "asp"}), "--run-dir", alone)
        self.assertEqual(cli.column(plain, "loss"), cli.column(alone, "loss"))

    def test_a_push_that_is_not_finite_ends_the_run_with_advice(self):
        config = configuration(self.folder, {"policy": "asp"}, train={"lr": 1e30, "optimizer": "sgd", "clip_norm": 0,
                                                                      "weight_decay": 0, "steps": 100})
        server, worker = cli.finish_all(self.start_all(config, 2))
        self.assertEqual(server.returncode, 6, server.stderr)
        self.assertRegex(cli.error_of(server), r"worker 0 .* has failed: step \d+: the loss is .*; lower train.lr")
        self.assertEqual(worker.returncode, 6, worker.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
