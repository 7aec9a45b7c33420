#!/usr/bin/env python3
"""torchrun starts the processes of a run, shows why one failed, and restarts them.

    torchrun_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import subprocess
import sys
import unittest

import long_tests
import ranks_test
import sluice_cli as cli


class TorchrunTest(ranks_test.RanksCase):
    def torchrun(self, *words):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--standalone", "--nproc-per-node", "2"]
        command = [*torchrun, cli.BINARY, "train", ranks_test.configuration(self.folder), "--run-dir", self.run_dir, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=cli.PATIENCE_S, check=False)

    def test_torchrun_starts_it(self):
        done = self.torchrun()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(ranks_test.curve(self.run_dir)), ranks_test.STEPS)

    @long_tests.only("one more start of torchrun")
    def test_torchrun_shows_the_sentence_of_what_went_wrong(self):
        done = self.torchrun("--set", "train.lr=1e30", "--set", "train.precision=fp32")
        self.assertNotEqual(done.returncode, 0)
        root_cause = done.stderr.partition("Root Cause")[2]
        self.assertIn("the loss is", root_cause, done.stderr)

    @long_tests.only("app_faults starts a run again after deaths in CI")
    def test_torchrun_restarts_it_after_a_death_and_it_goes_on(self):
        once = self.folder / "once.sh"
        once.write_text("\n".join([
            "#!/bin/bash", "# Rank 1 dies in the first attempt.",
            'if [[ $RANK == 1 && $TORCHELASTIC_RESTART_COUNT == 0 ]]; then', '  "$@" & process=$!',
            f"""  while ! grep -q '"step":6,' "{self.run_dir}/metrics.jsonl" 2>/dev/null; do sleep 0.02; done""",
            "  kill -9 $process; wait $process; exit 137", "fi", 'exec "$@"', ""]))
        once.chmod(0o755)
        command = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--standalone", "--nproc-per-node", "2",
                   "--max-restarts", "1", once, cli.BINARY, "train", ranks_test.configuration(self.folder, train={"steps": 60}),
                   "--run-dir", self.run_dir, "--resume", "auto"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=cli.PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("rank 1 (host ", done.stderr)
        self.assertEqual([line[0] for line in ranks_test.curve(self.run_dir)], list(range(1, 61)))
        self.assertEqual(len(cli.events(self.run_dir, "resume")), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
