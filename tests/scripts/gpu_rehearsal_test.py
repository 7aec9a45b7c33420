#!/usr/bin/env python3
"""The way to a GPU machine and back, without a GPU: the programs are packed, unpacked in a copy of the repository that has no
build, and run by scripts/gpu_check.sh --on-cpu; the results come back."""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class RehearsalTest(unittest.TestCase):
    def test_packed_programs_run_where_nothing_was_built(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        packed, there, back = folder / "build.tar.xz", folder / "there", folder / "back"
        subprocess.run([ROOT / "scripts" / "gpu_pack.sh", packed], check=True, env=os.environ | {"SLUICE_GPU_PACK_PRESET": "0"})
        for part in ("scripts", "configs", "bench", "docs", "tests/models", "tests/support"):
            shutil.copytree(ROOT / part, there / part)
        subprocess.run(["tar", "-C", there, "-xJf", packed], check=True)
        python = folder / "bin" / "python3"  # with PyTorch, as the GPU machine has it
        python.parent.mkdir()
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
        python.chmod(0o755)
        clean = {"HOME": str(folder), "PATH": f"{python.parent}:/usr/bin:/bin", "SLUICE_GPU_CHECK_BUDGET_S": "200"}
        done = subprocess.run([there / "scripts" / "gpu_check.sh", "--on-cpu", "first", folder / "out", back], env=clean,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        verdicts = dict(line.split(": ", 1) for line in (back / "gpu_check.txt").read_text(encoding="utf-8").splitlines())
        for check in ("devices", "train_one", "train_grid", "speed_vit_b16"):
            self.assertRegex(verdicts[check], "^passed", done.stdout)
        self.assertEqual({verdict for verdict in verdicts.values() if not verdict.startswith("passed")}, {"not run: it needs a GPU"})
        self.assertEqual(len((back / "gpu_results.md").read_text(encoding="utf-8").splitlines()), len(verdicts))
        with tarfile.open(back / "logs.tar.gz") as logs:
            self.assertIn("./first/train_grid.log", logs.getnames())


if __name__ == "__main__":
    unittest.main()
