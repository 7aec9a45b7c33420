#!/usr/bin/env python3
"""scripts/experiment.py: what it runs, what it makes of the metrics, and what it says when a run fails."""

import json
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from script_copy import ScriptCopy

# Says where it was started, and takes $FAKE_<devices>_MS a step, the warm-up's first one excepted.
FAKE = r'''#!/usr/bin/env python3
import json, os, pathlib, sys, time
arguments = sys.argv[1:]
sets = dict(value.split("=", 1) for name, value in zip(arguments, arguments[1:]) if name == "--set")
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
with open(os.environ["FAKE_CALLS"], "a") as calls:
    calls.write(json.dumps([rank, world, os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT"), sets]) + "\n")
if rank == int(os.environ.get("FAKE_FAILS", -1)) and world > 1:
    print("warning of something\nerror   data.path: gone", file=sys.stderr)
    sys.exit(3)
if "FAKE_HANGS" in os.environ:
    time.sleep(60)
if world > 1 and "FAKE_FAILS" in os.environ:
    sys.exit(5)
if rank == 0:
    folder = pathlib.Path(arguments[arguments.index("--run-dir") + 1])
    folder.mkdir()
    devices = world * int(sets["replicas.local"])
    steps = [{"event": "step", "step_ms": 1000.0 if i == 0 else 742.0 / devices, "samples": int(sets["train.global_batch"])}
             for i in range(int(sets["train.steps"]))]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [{"event": "plan"}, *steps]))
'''


class ExperimentTest(unittest.TestCase):
    def setUp(self):
        self.copy = self.enterContext(ScriptCopy())
        self.copy.stand_in("build/release/sluice", "")
        (self.copy.root / "build/release/sluice").write_text(FAKE, encoding="utf-8")
        self.calls_file = self.copy.bin.parent / "calls"

    def run_experiment(self, *options, **variables):
        return self.copy.run("experiment.py", "single_dp_ddp", *options, FAKE_CALLS=str(self.calls_file), **variables)

    def calls(self):
        return [json.loads(line) for line in self.calls_file.read_text().splitlines()]

    def test_results_need_a_folder(self):
        (self.copy.root / "file").touch()
        for place in ("file", "file/below"):
            done = self.run_experiment("--out", str(self.copy.root / place))
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1), done.stderr)
            self.assertIn("give a folder that can be written", done.stderr)

    def test_the_ways_take_turns_on_the_same_task(self):
        done = self.run_experiment("--rounds", "2", "--steps", "3", "--warmup", "2", "--batch", "16", "--set", "data.flip=true", RANK="7", WORLD_SIZE="9")
        self.assertEqual(done.returncode, 0, done.stderr)
        ways = [(world, sets["replicas.local"]) for _, world, _, _, sets in self.calls()]
        self.assertEqual(ways, 2 * [(1, "1"), (1, "2"), (2, "1"), (2, "1")])
        for rank, world, host, port, sets in self.calls():
            task = {key: sets[key] for key in ("model.name", "data.name", "train.global_batch", "train.steps", "device.list", "data.flip")}
            expected = {"model.name": "vgg16", "data.name": "shapes", "train.global_batch": "16", "train.steps": "5", "device.list": "cpu", "data.flip": "true"}
            self.assertEqual(task, expected)
            self.assertEqual((host, port is None), (None, True) if world == 1 else ("127.0.0.1", False))
            self.assertLess(rank, world)

    def test_the_table_has_the_form_of_the_notes(self):
        done = self.run_experiment("--rounds", "1", "--steps", "2", "--warmup", "1")
        self.assertIn("0.742 s / 0.371 s per step = 2.00x (ddp)\n", done.stdout)
        self.assertRegex(done.stdout, r"\nsingle +one device +1 +0\.742 +0\.742-0\.742 +86\.3 +1\.00x\n")

    def test_json_is_one_object_with_the_measured_batch(self):
        done = self.run_experiment("--rounds", "1", "--ways", "single", "dp", "--json", "--set", "train.global_batch=742")
        rows = json.loads(done.stdout)["rows"]
        self.assertEqual([(row["way"], row["devices"], row["processes"]) for row in rows], [("single", 1, 1), ("dp", 2, 1)])
        self.assertAlmostEqual(rows[0]["images_per_s"], 1000)
        self.assertAlmostEqual(rows[1]["speed_up"], 2)

    def test_full_scale(self):
        self.assertEqual(self.run_experiment("--scale", "full", "--rounds", "1", "--data", "/a b").returncode, 0)
        *_, sets = self.calls()[-1]
        self.assertEqual([sets[key] for key in ("device.list", "data.name", "data.path", "data.workers", "train.global_batch")],
                         ["cuda", "cifar10", "/a b", "4", "256"])
        self.assertNotIn("device.threads", sets)
        self.assertEqual([world for _, world, *_ in self.calls()], [1, 1, 4, 4, 4, 4])

    def test_a_run_that_fails_is_named_with_its_cause(self):
        for rank in ("0", "1"):
            done = self.run_experiment("--rounds", "1", FAKE_FAILS=rank)
            self.assertEqual((done.returncode, done.stdout), (3, ""))
            self.assertIn(f"experiment.py: ddp in round 1, rank {rank}, ended with exit code 3: error   data.path: gone (--out", done.stderr)

    def test_a_set_that_leaves_nothing_to_measure_is_refused(self):
        done = self.run_experiment("--rounds", "1", "--warmup", "2", "--set", "train.steps=2")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("experiment.py: single in round 1 made no step after the 2 of warm-up (2 in all): leave train.steps and train.epochs to the experiment",
                      done.stderr)

    def test_out_keeps_a_log_a_run(self):
        out = self.copy.bin.parent / "out"
        self.assertEqual(self.run_experiment("--rounds", "1", "--out", str(out), FAKE_FAILS="1").returncode, 3)
        self.assertEqual((out / "round1-ddp" / "rank1.log").read_text().splitlines()[1], "error   data.path: gone")
        self.assertTrue((out / "round1-dp" / "run" / "metrics.jsonl").exists())
        done = self.run_experiment("--out", str(out), "--steps", "3")
        self.assertEqual(done.returncode, 2)
        self.assertIn("exists already, of an experiment with steps = 6 and not 3: give another folder", done.stderr)

    def test_a_second_call_goes_on_after_the_runs_that_are_done(self):
        out = self.copy.bin.parent / "out"
        self.assertEqual(self.run_experiment("--rounds", "1", "--out", str(out), FAKE_FAILS="1").returncode, 3)
        self.calls_file.unlink()
        done = self.run_experiment("--rounds", "2", "--out", str(out))
        self.assertEqual(done.returncode, 0, done.stderr)
        ways = [(world, sets["replicas.local"]) for _, world, _, _, sets in self.calls()]
        self.assertEqual(ways, 2 * [(2, "1")] + [(1, "1"), (1, "2"), (2, "1"), (2, "1")])  # ddp of round 1, and round 2
        self.assertIn("run 3 of 6: ddp in round 1 (about 0 min", done.stderr)
        self.calls_file.unlink()
        again = self.run_experiment("--rounds", "2", "--out", str(out))
        self.assertEqual((again.returncode, again.stdout, self.calls_file.exists()), (0, done.stdout, False))

    def test_a_row_that_was_cut_off_is_measured_again(self):
        out = self.copy.bin.parent / "out"
        self.assertEqual(self.run_experiment("--rounds", "1", "--out", str(out)).returncode, 0)
        results = out / "results.csv"
        results.write_text(results.read_text(encoding="utf-8")[:-9], encoding="utf-8")
        self.calls_file.unlink()
        self.assertEqual(self.run_experiment("--rounds", "1", "--out", str(out)).returncode, 0)
        self.assertEqual([world for _, world, *_ in self.calls()], [2, 2])
        self.assertEqual(len(results.read_text(encoding="utf-8").splitlines()), 4)

    def test_a_folder_of_something_else_is_left_alone(self):
        out = self.copy.bin.parent / "out"
        out.mkdir()
        (out / "mine").touch()
        done = self.run_experiment("--out", str(out))
        self.assertEqual((done.returncode, "is not the folder of an experiment" in done.stderr), (2, True))
        self.assertEqual(sorted(path.name for path in out.iterdir()), ["mine"])

    def test_a_missing_program_says_what_to_do(self):
        (self.copy.root / "build/release/sluice").unlink()
        done = self.run_experiment()
        self.assertEqual(done.returncode, 2)
        self.assertIn("run scripts/bootstrap.sh", done.stderr)

    def test_a_signal_ends_its_runs(self):
        environment = self.copy.environment(FAKE_CALLS=str(self.calls_file), FAKE_HANGS="1")
        with subprocess.Popen([sys.executable, *self.copy.words("experiment.py", "single_dp_ddp")], env=environment, stderr=subprocess.DEVNULL) as process:
            end = time.monotonic() + 60
            while not self.calls_file.exists() and time.monotonic() < end:
                time.sleep(0.02)
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            self.assertEqual(len(children), 1)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=60), 130)
        self.assertFalse(pathlib.Path(f"/proc/{children[0]}").exists())


if __name__ == "__main__":
    unittest.main()
