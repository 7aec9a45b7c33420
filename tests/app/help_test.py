#!/usr/bin/env python3
"""--help and `config` of the binary, messages about options, and the documentation page that is made from --help.

    help_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest

import long_tests
import sluice_cli as cli

GROUPS = {
    "Train": ["train", "eval", "step", "merge", "tokenize"],
    "Look": ["report", "digest", "compare", "config", "models", "datasets", "devices", "version"],
    "Plan": ["profile", "tune", "schedule", "simulate", "memory", "replay", "batch-plan"],
    "Serve": ["serve", "make-keys"],
}


class HelpTest(unittest.TestCase):
    def test_commands_stand_in_groups(self):
        text = cli.must_run("--help").stdout
        for group, commands in GROUPS.items():
            rows = re.search(rf"^{group}:\n((?:  .*\n)+)", text, re.MULTILINE).group(1)
            self.assertEqual(re.findall(r"^  (\S+)", rows, re.MULTILINE), commands)

    @long_tests.only("20 s")
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


class UnknownOptionTest(unittest.TestCase):
    def assert_refused(self, words, *parts):
        done = cli.run(*words)
        self.assertEqual(done.returncode, 2, done.stderr)
        for part in parts:
            self.assertIn(part, cli.error_of(done))

    def test_an_unknown_option_is_named_with_the_nearest(self):
        self.assert_refused(("train", "some.toml", "--run-dri", "runs/a"),
                            "`sluice train` has no option '--run-dri'; did you mean '--run-dir'?", "--help")
        self.assert_refused(("memory", "some.toml", "--porfile=x.json"), "no option '--porfile'; did you mean '--profile'?")
        self.assert_refused(("--verbos", "version"), "`sluice version` has no option '--verbos'; did you mean '--verbose'?")

    def test_an_option_unlike_any_other_is_named_alone(self):
        self.assert_refused(("train", "some.toml", "--nonsense"), "`sluice train` has no option '--nonsense'; see")

    def test_an_option_without_its_value_names_what_it_needs(self):
        self.assert_refused(("train", "some.toml", "--resume"), "--resume needs a value: DIR|auto; see")

    def test_a_size_that_cannot_be_read_names_its_option_and_the_units(self):
        self.assert_refused(("memory", "some.toml", "--profile", "some.json", "--limit", "32XB"),
                            "--limit: '32XB' is not a size", "KiB to TiB", "16GiB")


class ConfigListingTest(unittest.TestCase):
    def listing(self, *words):
        return cli.must_run("config", *words, "--set", "data.prefetch=7", "--set", "train.lr=0.125").stdout

    def test_advanced_keys_are_hidden_while_they_have_their_defaults(self):
        text, full = self.listing(), self.listing("--all")
        short, everything = tomllib.loads(text), tomllib.loads(full)
        self.assertEqual((short["data"]["prefetch"], short["train"]["lr"]), (7, 0.125))
        keys, all_keys = ({(table, key) for table, values in listing.items() for key in values} for listing in (short, everything))
        self.assertLess(keys, all_keys)
        self.assertEqual(text.splitlines()[-1],
                         f"# Hidden: {len(all_keys) - len(keys)} advanced keys that were not changed; `sluice config --all` lists every key.")
        self.assertNotIn("Hidden", full)

    def test_the_short_listing_is_the_same_configuration(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "short.toml"
            file.write_text(self.listing(), encoding="utf-8")
            self.assertEqual(cli.must_run("config", "--all", file).stdout, self.listing("--all"))


if __name__ == "__main__":
    unittest.main()
