#!/usr/bin/env python3
"""scripts/run.sh: the started process, its folder and its arguments."""

import os
import signal
import subprocess
import unittest

from script_copy import ScriptCopy

SHOW = 'printf "%s\\n" "$PWD" "$GOMP_SPINCOUNT" "$@"\n'


class RunTest(unittest.TestCase):
    def setUp(self):
        self.copy = self.enterContext(ScriptCopy())
        self.copy.stand_in("scripts/bootstrap.sh", "exit 0\n")
        self.copy.stand_in("build/release/sluice", SHOW)

    def test_without_arguments_trains_the_quickstart_in_the_repository(self):
        done = self.copy.run("run.sh", cwd="/")
        self.assertEqual(done.stdout.splitlines(), [str(self.copy.root), "3000", "train", "configs/quickstart.toml"])
        self.assertEqual(done.returncode, 0)

    def test_options_are_passed_on_unchanged(self):
        done = self.copy.run("run.sh", "--set", "data.path=/a b/$HOME", "--dry-run")
        self.assertEqual(done.stdout.splitlines()[4:], ["--set", "data.path=/a b/$HOME", "--dry-run"])

    def test_directories_are_relative_to_the_caller(self):
        done = self.copy.run("run.sh", "--run-dir", "out", "--resume", "auto", cwd="/usr")
        self.assertEqual(done.stdout.splitlines()[4:], ["--run-dir", "/usr/out", "--resume", "auto"])

    def test_the_callers_environment_wins(self):
        done = self.copy.run("run.sh", GOMP_SPINCOUNT="7", SLUICE_CONFIG="/other.toml")
        self.assertEqual(done.stdout.splitlines()[1:], ["7", "train", "/other.toml"])

    def test_a_positional_argument_is_bad_usage(self):
        done = self.copy.run("run.sh", "1", "2", "0")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("usage: scripts/run.sh", done.stderr)

    def test_a_failed_bootstrap_ends_it_with_the_same_code(self):
        self.copy.stand_in("scripts/bootstrap.sh", "exit 8\n")
        done = self.copy.run("run.sh")
        self.assertEqual((done.returncode, done.stdout), (8, ""))

    def test_a_build_without_the_program_says_so(self):
        (self.copy.root / "build/release/sluice").unlink()
        done = self.copy.run("run.sh")
        self.assertEqual(done.returncode, 70)
        self.assertIn("no build/release/sluice", done.stderr)

    def test_signals_reach_the_program(self):
        self.copy.stand_in("build/release/sluice", 'trap "echo stopped; exit 130" TERM\necho ready\nwhile :; do sleep 0.05; done\n')
        command = str(self.copy.root / "scripts/run.sh")
        with subprocess.Popen([command], env=self.copy.environment(), stdout=subprocess.PIPE, text=True) as process:
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.stdout.readline(), "stopped\n")
            self.assertEqual(process.wait(timeout=20), 130)


    def test_sh_passes_the_arguments_on_unchanged(self):
        done = self.copy.run_by("sh", "run.sh", "--set", "data.path=/a b/$HOME *", "", cwd=self.copy.root / "scripts")
        self.assertEqual(done.stdout.splitlines()[2:], ["train", "configs/quickstart.toml", "--set", "data.path=/a b/$HOME *", ""])
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_sh_in_posix_mode_is_no_other_shell(self):
        done = self.copy.run_by("bash", "--posix", "scripts/run.sh", cwd=self.copy.root, POSIXLY_CORRECT="1")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.splitlines()[2:], ["train", "configs/quickstart.toml"])


class HelpTest(unittest.TestCase):
    def setUp(self):
        self.copy = self.enterContext(ScriptCopy())
        # The others are sourced.
        self.scripts = [script for script in sorted((self.copy.root / "scripts").glob("*.sh")) if os.access(script, os.X_OK)]
        self.assertGreater(len(self.scripts), 5)

    def test_every_script_has_help(self):
        for script in self.scripts:
            with self.subTest(script=script.name):
                done = self.copy.run(script.name, "--help")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn("usage: scripts/" + script.name, done.stdout)

    def test_every_script_runs_under_any_shell_from_anywhere(self):
        """Notes say `sh run.sh ...`; Debian's sh is dash."""
        for script in self.scripts:
            expected = self.copy.run_by("bash", script, "--help", cwd="/").stdout
            for shell in ("sh", "dash", "bash"):
                for path, cwd in ((script.name, script.parent), ("./" + script.name, script.parent),
                                  ("scripts/" + script.name, self.copy.root), (script, "/")):
                    with self.subTest(shell=shell, path=path):
                        done = self.copy.run_by(shell, path, "--help", cwd=cwd)
                        self.assertEqual((done.returncode, done.stderr, done.stdout), (0, "", expected))


if __name__ == "__main__":
    unittest.main()
