#!/usr/bin/env python3
"""scripts/stop.sh: ends what was started here, lets it save, and touches nothing else."""

import os
import pathlib
import signal
import subprocess
import unittest

from launch_test import LaunchCase
from script_copy import REPOSITORY

LONG = {"sleep": 60}
BOOT = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def start_time(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[19]


class StopTest(LaunchCase):
    def setUp(self):
        super().setUp()
        self.started = self.copy.bin.parent / "started"

    def start(self, *command, plan):
        process = self.start_script(*command, plan=plan)
        for rank in plan:
            self.seen(rank)
        return process

    def records(self):
        return [file for file in self.started.iterdir() if file.name != "lock"]

    def stranger(self):
        process = subprocess.Popen(["sleep", "60"])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def write_record(self, boot, *lines):
        self.started.mkdir(mode=0o700, exist_ok=True)
        file = self.started / "1234.5678"
        file.write_text("\n".join([boot, *lines]) + "\n", encoding="ascii")
        return file

    def test_nothing_runs(self):
        done = self.run_script("stop.sh")
        self.assertEqual((done.returncode, done.stderr), (0, "stop.sh: no process of these scripts is running\n"))

    def test_every_launch_is_asked_once_and_waited_for(self):
        single = self.start("run.sh", plan={"0": LONG})
        ranks = self.start("run_ddp.sh", 2, 2, 1, "h", 5000, plan={"2": LONG, "3": LONG})
        done = self.run_script("stop.sh")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"run.sh configs/quickstart.toml (pid {single.pid})", done.stderr)
        self.assertEqual((single.wait(timeout=60), ranks.wait(timeout=60)), (130, 130))
        self.assertEqual([self.signals(rank) for rank in (0, 2, 3)], [["SIGTERM"]] * 3)
        self.assertEqual(self.records(), [])

    def test_ranks_whose_launcher_was_killed_are_asked_themselves(self):
        process = self.start("run_ddp.sh", 2, 1, 0, "h", 5000, plan={"0": LONG, "1": LONG})
        process.kill()
        process.wait()
        self.assertEqual(self.run_script("stop.sh").returncode, 0)
        self.assertEqual([self.signals(rank) for rank in (0, 1)], [["SIGTERM"]] * 2)

    def test_what_does_not_end_is_killed(self):
        process = self.start("run_ddp.sh", 2, 1, 0, "h", 5000, plan={"0": LONG, "1": {**LONG, "stopped": "never"}})
        done = self.run_script("stop.sh", "--timeout", "1")
        self.assertEqual(done.returncode, 5)
        self.assertIn("killing processes that did not end", done.stderr)
        process.wait(timeout=60)
        self.assertEqual(self.records(), [])

    def test_a_record_that_was_removed_lists_nothing(self):
        done = subprocess.run(["bash", "-c", 'source "$0" && ! list_running "$1"', REPOSITORY / "scripts/started.sh", self.started / "1.2"],
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_it_says_that_it_waits(self):
        process = self.start("run.sh", plan={"0": {**LONG, "stopped": "never"}})
        done = self.run_script("stop.sh", "--timeout=6")
        self.assertIn("stop.sh: 1 still run after 5 s of at most 6 s\n", done.stderr)
        self.assertEqual(process.wait(timeout=60), -signal.SIGKILL)

    def test_a_stranger_with_a_recycled_number_lives(self):
        """The symptom: stop.sh kills an editor that got the pid of yesterday's run."""
        stranger = self.stranger()
        own, other = start_time(stranger.pid), int(start_time(stranger.pid)) - 1
        no_boot = "00000000-0000-0000-0000-000000000000"
        for boot, line in ((BOOT, f"{stranger.pid} {other} run.sh"), (no_boot, f"{stranger.pid} {own} run.sh"), (BOOT, f"-1 {own} x"), (BOOT, "")):
            with self.subTest(boot=boot, line=line):
                record = self.write_record(boot, line)
                done = self.run_script("stop.sh")
                self.assertEqual((done.returncode, done.stderr), (0, "stop.sh: no process of these scripts is running\n"))
                self.assertFalse(record.exists())
                self.assertIsNone(stranger.poll())

    def test_a_name_with_brackets_does_not_hide_a_process(self):
        program = self.copy.bin / "x) Z 1 (y"
        program.symlink_to("/bin/sleep")
        with subprocess.Popen([str(program), "60"]) as process:
            self.write_record(BOOT, f"{process.pid} {start_time(process.pid)} run.sh")
            self.assertEqual(self.run_script("stop.sh").returncode, 0)
            self.assertEqual(process.wait(timeout=60), -signal.SIGTERM)

    def test_a_folder_that_others_may_write_is_not_trusted(self):
        stranger = self.stranger()
        self.write_record(BOOT, f"{stranger.pid} {start_time(stranger.pid)} run.sh")
        self.started.chmod(0o777)
        self.assertEqual(self.run_script("stop.sh").returncode, 8)
        self.assertIsNone(stranger.poll())
        done = self.run_script("run.sh")
        self.assertEqual(done.returncode, 0)
        self.assertIn("scripts/stop.sh will not find this run", done.stderr)

    def test_a_link_in_its_place_is_not_trusted(self):
        (self.copy.bin.parent / "elsewhere").mkdir(mode=0o700)
        self.started.symlink_to(self.copy.bin.parent / "elsewhere")
        self.assertEqual(self.run_script("stop.sh").returncode, 8)

    def test_a_launch_removes_stale_records_of_others(self):
        record = self.write_record(BOOT, f"{os.getpid()} 1 run.sh")
        self.assertEqual(self.run_script("run.sh").returncode, 0)
        self.assertFalse(record.exists())

    def test_bad_usage(self):
        for arguments in (("now",), ("--timeout",), ("--timeout", "soon")):
            self.assertEqual(self.run_script("stop.sh", *arguments).returncode, 2)


if __name__ == "__main__":
    unittest.main()
