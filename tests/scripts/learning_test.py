#!/usr/bin/env python3
"""bench/learning.py: how many seeds it takes, and what it makes of them. Nothing is trained here. Exits 77 without torchvision."""

import contextlib
import io
import pathlib
import sys
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

try:
    import learning
except ModuleNotFoundError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


class LearningTest(unittest.TestCase):
    def learn(self, *words, top1):
        """(exit code, what was said) of runs that have this top-1, ours and the peer's of each seed."""
        ours, peers = (unittest.mock.Mock(side_effect=[pair[side] for pair in top1]) for side in range(2))
        said = io.StringIO()
        with unittest.mock.patch.multiple(learning, ours=ours, peer=peers), \
                unittest.mock.patch.object(sys, "argv", ["learning.py", "cifar10", "folder", *words]), \
                contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                return learning.main(), said.getvalue()
            except SystemExit as end:
                return end.code, said.getvalue()

    def test_as_many_seeds_as_one_likes(self):
        for seeds in (2, 6, 40):
            code, said = self.learn("--seeds", str(seeds), top1=[(60.0 + seed % 2, 61.0 - seed % 2) for seed in range(seeds)])
            self.assertEqual(code, 0, said)
            self.assertIn(f"top-1 of {seeds} seeds: ours 60.50", said)

    def test_one_seed_is_refused_before_anything_is_trained(self):
        for seeds in ("1", "0", "-3"):
            code, said = self.learn("--seeds", seeds, top1=[])
            self.assertEqual(code, 2)
            self.assertIn(f"--seeds: {seeds} is less than 2", said)

    def test_worse_than_the_noise_of_the_seeds_is_a_failure(self):
        self.assertEqual(self.learn("--seeds", "3", top1=[(50.0, 60.0), (51.0, 61.0), (52.0, 62.0)])[0], 1)
        code, said = self.learn("--seeds", "3", top1=[(59.0, 60.0), (60.0, 61.0), (61.0, 62.0)])
        self.assertEqual(code, 0)
        self.assertIn("difference -1.00, noise of the seeds 2.27", said)  # 2.776 (2 / 3)^1/2


if __name__ == "__main__":
    unittest.main()
