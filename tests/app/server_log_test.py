#!/usr/bin/env python3
"""Parameter servers with a log of pushes that are killed, stopped short of space or begun again otherwise: no push that
was acknowledged is lost, none counts twice. Exits 77 without safetensors.

    server_log_test.py [unittest options]        SLUICE_BINARY names the binary
    SLUICE_LONG_TESTS=1                          all of them, a storm of kills too
"""

import random
import re
import resource
import signal
import time
import unittest

import long_tests
import sluice_cli as cli
from server_runs import BATCH, SLOW, ServerRuns, configuration

# At which the server kills itself, one server after the other.
MOMENTS = ("push-written:4", "push-acknowledged:3", "update-written:5", "record-half-written:4", "log-begun:1")


class ServerLogTest(ServerRuns):
    def kill_server_at(self, moments, config, processes, size):
        """The server that runs dies at the first of these; each one after it at the next."""
        for moment in [*moments[1:], None]:
            self.assertEqual(cli.finish(processes[0]).returncode, -signal.SIGKILL, processes[0].stderr)
            environment = {"SLUICE_KILL_AT": moment} if moment else {}
            processes[0] = self.start(config, 0, size, "--resume", "auto", environment=environment)

    def pushes_of(self, run_dir):
        return [(push["step"], push["worker"], push["life"], push["sequence"]) for push in cli.events(run_dir, "push")]

    def assert_acknowledged_pushes_count(self, workers, run_dir):
        """workers: their processes, [worker]. A push that was acknowledged gives `last_send` another value."""
        pushes = cli.events(run_dir, "push")
        for worker, process in enumerate(workers):
            sends = re.findall(r"last_send \[([\d.]+)\]", process.stderr)
            acknowledged = len({send for send in sends if float(send) > 0})
            counted = sum(push["worker"] == worker for push in pushes)
            self.assertGreater(acknowledged, 10)
            self.assertGreaterEqual(counted, acknowledged, f"worker {worker}")
            self.assertLessEqual(counted, len(sends))

    def test_a_run_whose_server_dies_at_each_moment_is_bit_for_bit_one_that_does_not(self):
        """One worker, whose pushes have one order; no checkpoint but that of the end."""
        ps = {"policy": "bsp", "shards": 2, "log": "process"}
        config = configuration(self.folder, ps, train={"steps": 24}, replicas={"hang_timeout_s": 60})
        self.finish_well(self.start_all(config, 2, run_dir="whole"))
        moments = MOMENTS
        processes = [self.start(config, 0, 2, environment={"SLUICE_KILL_AT": moments[0]}), self.start(config, 1, 2)]
        self.kill_server_at(moments, config, processes, 2)
        done = self.finish_well(processes)
        self.assertIn("no checkpoint yet", done[0].stderr)
        self.assertRegex(done[0].stderr, r"the log in .*pushes has \d+ updates? after update 0")
        self.assert_same_bits(self.folder / "run", self.folder / "whole")
        self.assert_records_add_up(self.folder / "run")

    @long_tests.only("among the long tests")
    def test_a_server_that_dies_after_the_last_update_has_only_to_save(self):
        config = configuration(self.folder, {"policy": "asp", "log": "process"}, train={"steps": 6})
        processes = [self.start(config, 0, 2, environment={"SLUICE_KILL_AT": "update-written:6"}), self.start(config, 1, 2)]
        self.kill_server_at(["update-written:6"], config, processes, 2)
        self.finish_well(processes)
        self.assertEqual(cli.column(self.folder / "run", "step"), list(range(1, 7)))
        self.assert_records_add_up(self.folder / "run")
        self.assertFalse((self.folder / "run/pushes").exists(), "a run that is done needs no log")

    @long_tests.only("among the long tests")
    def test_another_configuration_is_refused_and_a_log_that_is_off_is_used_up(self):
        config = configuration(self.folder, {"policy": "asp", "log": "disk", **SLOW}, train={"steps": 40},
                               replicas={"hang_timeout_s": 60}, checkpoint={"every_steps": 10})
        processes = self.start_all(config, 2)
        run_dir = self.folder / "run"
        self.wait_for_step(17, processes[0])
        processes[0].kill()
        processes[0].wait()
        before = self.pushes_of(run_dir)
        metrics = (run_dir / "metrics.jsonl").read_bytes()
        done = cli.finish(self.start(config, 0, 2, "--resume", "auto", "--set", "ps.policy=ssp"))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(cli.error_of(done), "ps.policy is \"ssp\" now, but was \"asp\"")
        newest = max((run_dir / "pushes").glob("updates-*.log"), key=lambda file: int(file.stem.split("-")[1]))
        whole = newest.read_bytes()
        newest.write_bytes(whole[:300] + b"damaged" + whole[307:])
        done = cli.finish(self.start(config, 0, 2, "--resume", "auto"))
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertRegex(cli.error_of(done), r"updates-\d+.log is damaged at byte \d+ of \d+; to continue")
        newest.write_bytes(whole)
        self.assertEqual((run_dir / "metrics.jsonl").read_bytes(), metrics, "a refusal changes nothing")
        processes[0] = self.start(config, 0, 2, "--resume", "auto", "--set", "ps.log=off")
        self.finish_well(processes)
        self.assertEqual(self.pushes_of(run_dir)[:len(before)], before, "what was recorded is recorded again")
        self.assert_records_add_up(run_dir)

    def test_a_log_that_cannot_be_written_ends_the_run_and_nothing_is_lost(self):
        config = configuration(self.folder, {"policy": "asp", "log": "process"}, train={"steps": 40})

        def limit_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (12_000_000, resource.RLIM_INFINITY))

        server = self.start(config, 0, 2, preexec_fn=limit_files)
        done, worker = cli.finish_all([server, self.start(config, 1, 2)])
        self.assertEqual(done.returncode, 8, done.stderr)
        self.assertRegex(cli.error_of(done), r"cannot write .*pushes/updates-0.log: File too large.*ulimit")
        self.assertEqual(worker.returncode, 5, worker.stderr)
        before = self.pushes_of(self.folder / "run")
        self.assertGreater(len(before), 2)
        self.finish_well(self.start_all(config, 2, "--resume", "auto"))
        self.assertEqual(self.pushes_of(self.folder / "run")[:len(before)], before)
        self.assert_records_add_up(self.folder / "run")

    @long_tests.only("among the long tests")
    def test_whoever_names_a_checkpoint_goes_back_to_it(self):
        config = configuration(self.folder, {"policy": "asp", "log": "process"}, train={"steps": 12},
                               replicas={"hang_timeout_s": 60}, checkpoint={"every_steps": 4})
        run_dir = self.folder / "run"
        processes = [self.start(config, 0, 2, environment={"SLUICE_KILL_AT": "update-written:11"}), self.start(config, 1, 2)]
        self.assertEqual(cli.finish(processes[0]).returncode, -signal.SIGKILL)
        self.assertIn(4, cli.checkpoints(run_dir))
        self.assertGreater(len(list((run_dir / "pushes").glob("updates-*.log"))), 1)
        processes[0] = self.start(config, 0, 2, "--resume", run_dir / "checkpoints/step-4")
        done = self.finish_well(processes)
        self.assertRegex(done[0].stderr, r"the run restarts from step 4 without the later updates in the log; it is kept")
        self.assertTrue(list((run_dir / "pushes").glob("updates-*.log.replaced")))
        self.assertEqual(cli.column(run_dir, "step"), list(range(1, 13)))
        lives = [push["life"] for push in cli.events(run_dir, "push")]
        self.assertEqual(lives, [1] * 4 + [2] * 8, "of the first life only what the checkpoint has")
        self.assert_records_add_up(run_dir)

    def test_a_run_that_diverges_leaves_no_log_to_go_on_from(self):
        config = configuration(self.folder, {"policy": "asp", "log": "process"},
                               train={"lr": 1e30, "optimizer": "sgd", "clip_norm": 0, "weight_decay": 0, "steps": 100})
        server, _ = cli.finish_all(self.start_all(config, 2))
        self.assertEqual(server.returncode, 6, server.stderr)
        self.assertFalse((self.folder / "run/pushes").exists())

    @long_tests.only("among the long tests")
    def test_a_server_that_is_killed_at_random_loses_no_push_and_counts_none_twice(self):
        for log, policy, seed in (("process", "asp", 1), ("disk", "asp", 2), ("process", "quorum", 3), ("disk", "ssp", 4)):
            with self.subTest(log=log, policy=policy):
                chance = random.Random(seed)
                name = f"{log}-{policy}"
                config = configuration(self.folder, {"policy": policy, "log": log, **SLOW}, train={"steps": 300},
                                       replicas={"hang_timeout_s": 120}, checkpoint={"every_steps": chance.choice((0, 40))})
                processes = self.start_all(config, 3, "--set", "log.every=1", run_dir=name)
                run_dir = self.folder / name
                for _ in range(8):
                    self.wait_for_step(1, processes[0], name)
                    time.sleep(chance.uniform(0, 1.5))
                    processes[0].kill()
                    cli.finish(processes[0])
                    before = self.pushes_of(run_dir)
                    processes[0] = self.start(config, 0, 3, "--resume", "auto", "--set", "log.every=1", run_dir=name)
                    self.wait_for_step(len({push[0] for push in before}), processes[0], name)
                    self.assertEqual(self.pushes_of(run_dir)[:len(before) - 2], before[:-2])
                done = self.finish_well(processes)
                self.assertEqual(cli.column(run_dir, "step"), list(range(1, 301)))
                self.assert_records_add_up(run_dir)
                self.assert_acknowledged_pushes_count(done[1:], run_dir)

    @long_tests.only("among the long tests")
    def test_bulk_synchronous_workers_go_on_with_the_same_samples(self):
        whole, run_dir = self.folder / "whole", self.folder / "run"
        config = configuration(self.folder, {"policy": "bsp", "log": "process", **SLOW}, train={"steps": 60},
                               replicas={"hang_timeout_s": 60})
        self.finish_well(self.start_all(config, 4, run_dir="whole"))
        processes = self.start_all(config, 4)
        for kill_at in (10, 25, 40):
            self.wait_for_step(kill_at, processes[0])
            processes[0].kill()
            cli.finish(processes[0])
            processes[0] = self.start(config, 0, 4, "--resume", "auto")
        self.finish_well(processes)
        self.assertEqual(set(cli.column(run_dir, "samples")), {3 * BATCH})
        for name in ("step", "loss", "samples", "lr", "gradient_norm"):
            for ours, theirs in zip(cli.column(run_dir, name), cli.column(whole, name), strict=True):
                self.assertLessEqual(abs(ours - theirs), 1e-9 * max(abs(theirs), 1e-9), name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
