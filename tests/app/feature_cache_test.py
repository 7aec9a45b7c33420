#!/usr/bin/env python3
"""A run that keeps what its frozen layers make of the samples (freeze.cache).

    feature_cache_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import pathlib
import resource
import signal
import tempfile
import unittest

import long_tests
import sluice_cli as cli

SAMPLES, BATCH = 74, 10
BATCHES = 8  # an epoch
EPOCHS = 8
VIT = {"name": "vit", "size": "nano", "image_size": 16, "dropout": 0.1}  # no batch-norm: any grouping of samples will do
ROW_BYTES = 17 * 64 * 8  # of float64: 17 tokens of 64 numbers; the last block's output is as large
DISK = {"cache": "disk", "cache_bytes": "8MiB", "cache_disk_bytes": "64MiB"}


def configuration(folder, freeze, **tables):
    return cli.write_config(
        folder / f"run{len(list(folder.glob('*.toml')))}.toml",
        device={"list": "cpu"},
        model=VIT,
        data={"name": "shapes", "samples": SAMPLES, "crop_padding": 2, "flip": True, "views": 3, **tables.get("data", {})},
        train={"epochs": EPOCHS, "global_batch": BATCH, "lr": 0.003, "optimizer": "adamw", "clip_norm": 1.0, "seed": 3,
               "precision": "fp64", **tables.get("train", {})},
        pipeline={"stages": 2, "chunks": 2},
        replicas={"connect_timeout_s": 10, "hang_timeout_s": 10},
        freeze={"policy": "schedule", "schedule": ["1: 2", "5: 3"], **freeze},
        checkpoint={"every_steps": 20, "keep": 100})


class FeatureCacheTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """A run without the cache, which all others are compared with."""
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.off = folder / "off"
        cli.must_run("train", configuration(folder, {}), "--run-dir", cls.off)

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.place = self.folder / "features"

    def train(self, name, freeze, *arguments, processes=1, **tables):
        run_dir = self.folder / name
        if "cache" in freeze:
            freeze = {"cache_dir": str(self.place), **freeze}
        return run_dir, cli.must_run_ranks(processes, "train", configuration(self.folder, freeze, **tables), "--run-dir", run_dir, *arguments)

    def assert_close(self, ours, theirs, tolerance=1e-9):
        for mine, yours in zip(ours, theirs, strict=True):
            self.assertLessEqual(abs(mine - yours), tolerance * yours)

    def assert_same_learning(self, ours):
        self.assertEqual(len(cli.column(ours, "loss")), BATCHES * EPOCHS)
        for event in ("step", "eval"):
            self.assert_close(cli.column(ours, "loss", event), cli.column(self.off, "loss", event))

    def test_it_learns_what_a_run_without_it_learns(self):
        grid = [(processes, cache) for processes in (1, 2) for cache in ({"cache": "memory"}, DISK)]
        for processes, cache in long_tests.some(grid[::3], grid, "each place and number of processes once"):
            kept, _ = self.train(f"{cache['cache']}{processes}", cache, processes=processes)
            self.assert_same_learning(kept)
            found = cli.events(kept, "cache")
            self.assertEqual([line["step"] for line in found], [BATCHES * epoch for epoch in range(2, EPOCHS + 1)])
            on_disk = cache is DISK
            for line in found:
                self.assertEqual((line["rows_on_disk"] > 0, line["rows_in_memory"] > 0), (on_disk, not on_disk))
                self.assertLessEqual(line["memory_bytes"], 8 << 20 if on_disk else 1 << 30)
                self.assertLessEqual(line["disk_bytes"], 64 << 20)
            self.assertFalse(list(self.place.glob("*")), "the file has no name")

    @long_tests.only("8 s")
    def test_layers_thaw_and_their_rows_with_them(self):
        """Batches that were made ahead hold no pixels of samples whose rows are gone then."""
        thaws = {"schedule": ["1: 2", "5: 0", "6: 1"]}
        for data in ({}, {"views": 1}):
            off, _ = self.train(f"off{data}", thaws, data=data)
            run_dir, _ = self.train(f"kept{data}", {**thaws, "cache": "memory"}, data=data)
            self.assertGreater(cli.events(run_dir, "cache")[-1]["hits"], 0)
            self.assert_close(cli.column(run_dir, "loss"), cli.column(off, "loss"))

    def test_every_view_is_computed_once(self):
        """Epochs 1, 2 and 3 see three views; 4 to 7 see them again, also beyond the growth of the frozen layers at 5."""
        run_dir, _ = self.train("run", {"cache": "memory"})
        tests = SAMPLES // 5
        for line in cli.events(run_dir, "cache"):
            epoch = line["step"] // BATCHES - 1
            evaluations = max(0, epoch - 1)  # of frozen layers, when the epoch ends: those after epochs 1 .. epoch - 1
            misses = SAMPLES * min(epoch, 3) + (tests if evaluations > 0 else 0)
            hits = SAMPLES * max(0, epoch - 3) + tests * max(0, evaluations - 1)
            self.assertEqual((line["hits"], line["misses"]), (hits, misses), f"epoch {epoch}")

    def test_a_run_that_ends_within_an_epoch_reports_its_hits(self):
        steps = 2 * BATCHES + 3
        run_dir, _ = self.train("run", {"cache": "memory"}, train={"steps": steps})
        self.assertEqual([line["step"] for line in cli.events(run_dir, "cache")], [2 * BATCHES, steps])

    def test_the_budget_holds_and_the_rest_is_computed_each_time(self):
        few = 40 * ROW_BYTES
        run_dir, _ = self.train("run", {"cache": "memory", "cache_bytes": few})
        self.assert_same_learning(run_dir)
        for line in cli.events(run_dir, "cache"):
            self.assertLessEqual(line["memory_bytes"], few)
            self.assertGreater(line["rows_in_memory"], 0)
        self.assertGreater(cli.events(run_dir, "cache")[-1]["hits"], 0)

    def test_rounded_rows_train_too(self):
        run_dir, _ = self.train("run", {"cache": "memory", "cache_precision": "bf16"})
        first, second = cli.column(run_dir, "loss"), cli.column(self.off, "loss")
        again = 4 * BATCHES
        self.assert_close(first[:again], second[:again])
        self.assertNotEqual(first[again], second[again])
        self.assert_close(first[again:], second[again:], tolerance=0.02)

    @long_tests.only("two more runs; tests/data has a store without room")
    def test_a_full_disk_turns_it_off_with_one_warning(self):
        def little_space():  # no file may be larger: the model is 1.1 MiB, the rows of all views 1.9
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1400 << 10, 1400 << 10))

        runs = []
        for freeze, more in (({}, {}), ({**DISK, "cache_dir": str(self.place)}, {"preexec_fn": little_space})):
            config = configuration(self.folder, freeze, train={"optimizer": "sgd"})  # without state to save
            runs.append(self.folder / f"run{len(runs)}")
            said = cli.must_run("train", config, "--run-dir", runs[-1], **more).stderr
        warnings = [line for line in said.splitlines() if " warning " in line]
        self.assertEqual(len(warnings), 1, said)
        self.assertIn("the feature cache stops using the disk", warnings[0])
        self.assert_close(*(cli.column(run, "loss") for run in runs))

    def test_killed_it_leaves_nothing_and_goes_on(self):
        config = configuration(self.folder, {**DISK, "cache_dir": str(self.place)})
        run_dir = self.folder / "run"
        process = cli.start("train", config, "--run-dir", run_dir)
        metrics = run_dir / "metrics.jsonl"
        cli.wait_until(lambda: metrics.exists() and metrics.read_text(encoding="utf-8").count('"cache"') >= 4, process)
        process.send_signal(signal.SIGKILL)
        cli.finish(process)
        cli.must_run("train", config, "--run-dir", run_dir, "--resume", "auto")
        self.assertFalse(list(self.place.glob("*")))
        self.assert_same_learning(run_dir)

    def test_auto_decides_by_what_it_measures(self):
        run_dir, done = self.train("run", {"cache": "auto"})
        self.assertIn('freeze.cache = "auto": the frozen layers take', done[0].stderr)
        self.assert_same_learning(run_dir)

    def test_what_cannot_work_is_refused(self):
        refused = (({"freeze.cache": "memory", "train.deterministic": "true"}, "begins with an empty cache"),
                   ({"freeze.cache": "disk"}, "needs freeze.cache_disk_bytes"),
                   ({"freeze.cache": "memory", "data.views": 0}, "set data.views to the number"),
                   ({"freeze.cache": "memory", "freeze.cache_disk_bytes": 5}, 'is for freeze.cache="disk" or "auto"'),
                   ({"data.crop_padding": 0, "data.flip": "false"}, "all views of a sample are the same"))
        for keys, what in long_tests.some(refused[:2], refused, "one of each kind"):
            sets = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
            done = cli.run("train", configuration(self.folder, {}), "--dry-run", *sets)
            self.assertEqual(done.returncode, 2, keys)
            self.assertIn(what, cli.error_of(done))
        done = cli.run("train", configuration(self.folder, DISK), "--dry-run", env={**cli.environment_without_launchers(), "TMPDIR": "/nowhere"})
        self.assertEqual(done.returncode, 2)
        self.assertIn("TMPDIR is not a folder", cli.error_of(done))
        (self.folder / "file").touch()
        places = (self.folder / "file", self.folder / "file" / "below", "/dev/null")
        for place in long_tests.some(places[:1], places, "other files"):
            done = cli.run("train", configuration(self.folder, {**DISK, "cache_dir": str(place)}), "--run-dir", self.folder / "run")
            self.assertEqual(done.returncode, 2)
            self.assertIn("is not a folder; set it to a folder with room", cli.error_of(done))
            self.assertFalse((self.folder / "run").exists())

    def test_what_keeps_nothing_is_told(self):
        for keys, what in (({"freeze.policy": "none", "freeze.schedule": "[]"}, 'keeps nothing: freeze.policy = "none"'),
                           ({"data.views": EPOCHS - 1}, "repeat none of the 7 data.views")):
            sets = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
            done = cli.must_run("train", configuration(self.folder, {"cache": "memory"}), "--dry-run", *sets)
            self.assertIn(what, done.stderr)


if __name__ == "__main__":
    unittest.main()
