#!/usr/bin/env python3
"""What the README's tour writes into the repository's root is ignored by git; files of these names elsewhere are not.

    ignored_test.py [unittest options]
"""

import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def is_ignored(path):
    return subprocess.run(["git", "check-ignore", "-q", path], cwd=ROOT, check=False).returncode == 0


class IgnoredTest(unittest.TestCase):
    def test_what_the_tour_writes(self):
        tour = (ROOT / "README.md").read_text(encoding="utf-8")
        self.assertIn("--out step.safetensors", tour)
        self.assertIn("--run-dir runs/a", tour)
        for path in ("step.safetensors", "profile.json", "runs/a/metrics.jsonl"):  # the second: `sluice profile`
            self.assertTrue(is_ignored(path), path)
        for path in ("tests/step.safetensors", "bench/profile.json", "step.txt"):
            self.assertFalse(is_ignored(path), path)


if __name__ == "__main__":
    inside = subprocess.run(["git", "rev-parse", "--git-dir"], cwd=ROOT, check=False, capture_output=True)
    if inside.returncode != 0:
        print("no git repository")
        sys.exit(77)
    unittest.main(verbosity=2)
