#!/usr/bin/env python3
"""Several processes on a node: their lines, the signals that reach them, and the exit code that tells the cause."""

import os
import pathlib
import pty
import signal
import subprocess
import time
import unittest

from launch_test import LaunchCase

LONG = 60


def ddp(count, *options):
    return ("run_ddp.sh", count, 1, 0, "127.0.0.1", 5000, *options)


class ExitCodeTest(LaunchCase):
    def code(self, *codes):
        """Exit code of a run whose ranks end with these, the later ones later."""
        plan = {"0": {"code": codes[0]}}
        plan |= {str(rank): {"code": code, "after": [str(rank - 1), "ended"]} for rank, code in enumerate(codes) if rank > 0}
        return self.run_script(*ddp(len(codes)), plan=plan).returncode

    def test_the_cause_and_not_its_victims(self):
        self.assertEqual(self.code(0, 0), 0)
        self.assertEqual(self.code(5, 3), 3)
        self.assertEqual(self.code(3, 4), 3)
        self.assertEqual(self.code(130, 5), 5)
        self.assertEqual(self.code(130, 0), 130)

    def test_a_killed_rank_is_a_cause(self):
        process = self.start_script(*ddp(2), plan={"0": {"sleep": 1, "code": 5}, "1": {"sleep": LONG}})
        os.kill(self.seen(1)["pid"], signal.SIGKILL)
        self.assertEqual(process.wait(timeout=60), 137)
        self.assertNotIn("Killed", process.stderr.read())

    def test_ranks_without_the_failed_one_are_ended_after_a_while(self):
        plan = {"0": {"sleep": LONG, "stopped": 143}, "1": {"code": 5}}
        done = self.run_script(*ddp(2), plan=plan, SLUICE_PEER_GRACE_S="1")
        self.assertEqual(done.returncode, 5)
        self.assertIn("run_ddp.sh: rank 1 ended with exit code 5\n", done.stderr)
        self.assertIn("run_ddp.sh: ranks 0 still run 1 s later: sending SIGTERM\n", done.stderr)

    def test_a_rank_that_ignores_that_is_killed(self):
        done = self.run_script(*ddp(2), plan={"0": {"sleep": LONG, "stopped": "never"}, "1": {"after": ["0", "started"], "code": 4}}, SLUICE_PEER_GRACE_S="1")
        self.assertEqual(done.returncode, 4)
        self.assertIn("sending SIGKILL", done.stderr)


    def test_ranks_of_an_elastic_run_go_on(self):
        plan = {"0": {"code": 4}, "1": {"after": ["0", "ended"], "sleep": 3, "code": 0}}
        done = self.run_script(*ddp(2, "--set", "replicas.elastic=true"), plan=plan, SLUICE_PEER_GRACE_S="1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("rank 0 ended with exit code 4\n", done.stderr)
        hangs = {"0": {"code": 0}, "1": {"sleep": LONG, "stopped": 143}}
        done = self.run_script(*ddp(2, "--set", "replicas.elastic=true"), plan=hangs, SLUICE_PEER_GRACE_S="1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("ranks 1 still run 1 s later: sending SIGTERM\n", done.stderr)
        plan["1"]["code"] = 5
        self.assertEqual(self.run_script(*ddp(2, "--set", "replicas.elastic=true"), plan=plan).returncode, 4)


class OutputTest(LaunchCase):
    def test_each_line_names_its_rank(self):
        plan = {str(rank): {"say": f"I am {rank}", "code": 0} for rank in range(3)}
        done = self.run_script(*ddp(3), plan=plan)
        self.assertEqual(sorted(done.stderr.splitlines()), [f"[rank {rank}] I am {rank}" for rank in range(3)])

    def test_one_process_has_no_name(self):
        done = self.run_script("run_ddp.sh", 1, 2, 1, "h", 5000, plan={"1": {"say": "hello"}})
        self.assertEqual(done.stderr, "hello\n")

    def test_lines_come_while_it_runs(self):
        process = self.start_script(*ddp(2), plan={"1": {"say": "here", "sleep": LONG}})
        self.assertEqual(process.stderr.readline(), "[rank 1] here\n")

    def test_rank_0_keeps_the_terminal(self):
        try:
            ours, theirs = pty.openpty()
        except OSError as error:
            self.skipTest(f"there is no terminal to be had here: {error}")
        self.addCleanup(os.close, ours)
        plan = {"0": {"say": "progress"}, "1": {"after": ["0", "ended"], "say": "other"}}
        with subprocess.Popen(
            self.copy.words(*ddp(2)), env=self.copy.environment(**self.variables(plan, {})), stdin=subprocess.DEVNULL, stderr=theirs
        ) as process:
            os.close(theirs)
            self.assertEqual(process.wait(timeout=60), 0)
        text = os.read(ours, 4096).decode()
        self.assertIn("progress\r\n", text)
        self.assertNotIn("[rank 0]", text)
        self.assertIn("\r\x1b[K[rank 1] other\r\n", text)

    def test_nothing_is_left_behind(self):
        process = self.start_script(*ddp(2), plan={"0": {"say": "x"}, "1": {"say": "y"}})
        self.assertEqual(process.wait(timeout=60), 0)
        self.assertEqual(processes_of_session(process.pid), [])


def processes_of_session(session):
    """From /proc, because a bare machine has no ps."""
    found = []
    for file in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()  # state, parent, group, session, ...
        except OSError:  # it has ended meanwhile
            continue
        if int(fields[3]) == session:
            found.append(file.parent.name)
    return found


class SignalTest(LaunchCase):
    def start_long(self, count=2, **plan):
        process = self.start_script(*ddp(count), plan={str(rank): {"sleep": LONG, **plan} for rank in range(count)})
        for rank in range(count):
            self.seen(rank)
        return process

    def test_each_is_passed_on_once(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(signal=number.name):
                for file in self.folder.iterdir():
                    file.unlink()
                process = self.start_long()
                process.send_signal(number)
                self.assertEqual(process.wait(timeout=60), 130)
                self.assertEqual(process.stderr.read().count("] saved\n"), 2)
                self.assertEqual((self.signals(0), self.signals(1)), ([number.name], [number.name]))

    def test_ctrl_c_reaches_each_once(self):
        """A terminal signals the whole group; the ranks are not in it."""
        process = self.start_long(stopped="never")
        os.killpg(process.pid, signal.SIGINT)
        self.wait_for(lambda: self.signals(0) and self.signals(1), "the signal")
        time.sleep(0.5)
        self.assertEqual((self.signals(0), self.signals(1)), (["SIGINT"], ["SIGINT"]))
        for rank in (0, 1):
            os.kill(self.seen(rank)["pid"], signal.SIGKILL)
        self.assertEqual(process.wait(timeout=60), 137)

    def test_a_single_process_takes_the_scripts_place(self):
        process = self.start_script("run.sh", 1, 2, 1, "h", 5000, plan={"1": {"sleep": LONG}})
        self.assertEqual(self.seen(1)["pid"], process.pid)
        process.terminate()
        self.assertEqual(process.wait(timeout=60), 130)

    def test_two_launches_side_by_side(self):
        first = self.start_long()
        other = self.folder / "other"
        other.mkdir()
        second = self.start_script(*ddp(3), plan={"2": {"code": 3}}, FAKE_DIR=str(other))
        self.assertEqual(second.wait(timeout=60), 3)
        self.assertIsNone(first.poll())
        first.terminate()
        self.assertEqual(first.wait(timeout=60), 130)


if __name__ == "__main__":
    unittest.main()
