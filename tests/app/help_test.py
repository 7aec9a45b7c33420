#!/usr/bin/env python3
"""--help of the binary, and the page of the documentation that is made from it.

    help_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import pathlib
import re
import subprocess
import sys
import unittest

import sluice_cli as cli

GROUPS = {
    "Train": ["train", "eval", "step"],
    "Look": ["report", "config", "models", "datasets", "devices", "version"],
    "Plan": ["profile", "tune", "schedule", "simulate", "memory", "replay", "batch-plan"],
    "Serve": ["serve", "make-keys"],
}


class HelpTest(unittest.TestCase):
    def test_commands_stand_in_groups(self):
        text = cli.must_run("--help").stdout
        for group, commands in GROUPS.items():
            rows = re.search(rf"^{group}:\n((?:  .*\n)+)", text, re.MULTILINE).group(1)
            self.assertEqual(re.findall(r"^  (\S+)", rows, re.MULTILINE), commands)

    def test_every_command_has_help_on_standard_output(self):
        for command in ((), *((name,) for commands in GROUPS.values() for name in commands)):
            done = cli.must_run(*command, "--help")
            self.assertIn("Usage: sluice", done.stdout, command)
            self.assertEqual(done.stderr, "", command)
            self.assertRegex(done.stdout, rf"\nExamples?:\n  sluice {command[0] if command else ''}", command)
            for line in done.stdout.splitlines():
                self.assertLessEqual(len(line), 100, command)
            for line in done.stdout.partition("\nExample")[0].splitlines()[1:]:
                self.assertNotRegex(line, r"\b(TEXT|INT|UINT|FLOAT|REQUIRED|BOOLEAN)\b", "words, and no types of the parser's")

    def test_the_page_of_the_command_line_is_current(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        made = subprocess.run([sys.executable, root / "scripts/cli_page.py", cli.BINARY], capture_output=True, text=True, check=False)
        self.assertEqual(made.returncode, 0, made.stderr)
        page = (root / "docs/reference/cli.md").read_text(encoding="utf-8")
        self.assertEqual(made.stdout, page, "run: scripts/cli_page.py build/release/sluice > docs/reference/cli.md")


if __name__ == "__main__":
    unittest.main()
