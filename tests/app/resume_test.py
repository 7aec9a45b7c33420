#!/usr/bin/env python3
"""A run that was stopped, killed or damaged and then resumed ends as if nothing had happened (train.deterministic).

    resume_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import json
import pathlib
import random
import shutil
import signal
import struct
import tempfile
import time
import unittest

import long_tests
import sluice_cli as cli

STEPS, EVERY = 24, 4
MODELS = {
    "resnet8": {"name": "resnet8"},
    "vit": {"name": "vit", "size": "nano", "dropout": 0.1},
}
FILES = ("model.safetensors", "optimizer.safetensors")


def configuration(folder, model, **train):
    """2 stages x 2 replicas; 5 batches an epoch of which the last is short, shuffled and augmented."""
    return cli.write_config(
        folder / f"{model}.toml",
        device={"list": "cpu"},
        model={**MODELS[model], "image_size": 16},
        data={"name": "shapes", "samples": 72, "crop_padding": 2, "flip": True, "workers": 2},
        train={"deterministic": True, "steps": STEPS, "global_batch": 16, "lr": 0.05, "optimizer": "momentum",
               "weight_decay": 1e-3, "lr_schedule": "onecycle", "seed": 3, **train},
        pipeline={"stages": 2, "chunks": 2},
        replicas={"local": 2},
        checkpoint={"every_steps": EVERY, "keep": 100})


def curve(run_dir):
    """[(step, epoch, batch, loss)] of metrics.jsonl as written."""
    return [(line["step"], line["epoch"], line["batch"], line["loss"]) for line in cli.events(run_dir, "step")]


def as_float32(number):
    return struct.unpack("f", struct.pack("f", number))[0]


class ResumeTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.run_dir = self.folder / "run"

    def uninterrupted(self, config):
        whole = self.folder / "whole"
        cli.must_run("train", config, "--run-dir", whole)
        return whole

    def start(self, config, *arguments):
        return cli.start("train", config, "--run-dir", self.run_dir, "--resume", "auto", *arguments)

    def run_until_step(self, config, step, number):
        """Starts or resumes the run and sends the signal when `step` is done."""
        process = self.start(config)
        cli.wait_until(lambda: any(line[0] >= step for line in self.steps_so_far()), process)
        return cli.stop(process, number)

    def steps_so_far(self):
        try:
            return curve(self.run_dir)
        except ValueError:  # read while the last line was being written
            return []

    def assert_same_end(self, whole, resumed, steps=STEPS):
        self.assertEqual(curve(whole), curve(resumed))
        self.assertEqual([line[0] for line in curve(resumed)], list(range(1, steps + 1)))
        self.assert_same_tensors(cli.checkpoints(whole)[steps], cli.checkpoints(resumed)[steps])
        ends = [[line[key] for key in ("step", "loss", "top1", "samples")]
                for line in (cli.events(run, "eval")[-1] for run in (whole, resumed))]
        self.assertEqual(*ends)

    def assert_same_tensors(self, one, other):
        for name in FILES:
            self.assertEqual((one / name).read_bytes(), (other / name).read_bytes(), f"{other / name} differs")

    @long_tests.only("each run that is stopped is compared with a whole one")
    def test_two_runs_are_equal_bit_for_bit(self):
        config = configuration(self.folder, "resnet8")
        whole = self.uninterrupted(config)
        cli.must_run("train", config, "--run-dir", self.run_dir)
        self.assert_same_end(whole, self.run_dir)

    def test_a_finished_run_is_left_as_it_is(self):
        config = configuration(self.folder, "vit")
        first = json.loads(cli.must_run("train", config, "--run-dir", self.run_dir, "--json").stdout)
        before = self.contents()
        again = cli.must_run("train", config, "--run-dir", self.run_dir, "--resume", "auto", "--json")
        self.assertEqual(json.loads(again.stdout), first)
        self.assertEqual(self.contents(), before)

    def test_each_rate_of_a_loop_has_a_run_of_its_own_and_a_longer_one_goes_on(self):
        config = configuration(self.folder, "resnet8", steps=2)

        def train(rate, steps):
            return cli.must_run("train", config, "--resume", "auto", "--set", f"train.lr={rate}", "--set",
                                f"train.steps={steps}", cwd=self.folder).stderr

        train(0.1, 2)
        said = train(0.2, 2)
        first, second = sorted((self.folder / "runs").iterdir())
        self.assertIn(f"--resume auto skips runs/{first.name}: train.lr = 0.2 (was 0.1). To continue it, pass --resume "
                      f"runs/{first.name}.", said)
        self.assertIn("--resume auto: no run with this configuration has a checkpoint, so starting a new run", said)
        said = train(0.1, 4)
        self.assertIn(f"resumed from runs/{first.name}/checkpoints/step-2 at step 2 of 4", said)
        self.assertRegex(said, 'the learning rate changes from .* in step 2 to .* in step 3: train.lr_schedule = "onecycle" '
                               "ended at step 2 and now ends at step 4")
        self.assertEqual([len(curve(run)) for run in (first, second)], [4, 2])

    @long_tests.only("app_several_servers has one that is not saved at its end in CI")
    def test_where_none_is_asked_for_at_the_end_the_last_one_is_that_of_its_interval(self):
        config = configuration(self.folder, "resnet8")
        less = ("--set", "checkpoint.at_end=false", "--set", f"checkpoint.every_steps={STEPS // 2 - 2}")  # 10, 20
        cli.must_run("train", config, "--run-dir", self.run_dir, *less)
        last = max(cli.checkpoints(self.run_dir))
        self.assertEqual(last, STEPS - 4)
        before = curve(self.run_dir)
        again = cli.must_run("train", config, "--run-dir", self.run_dir, "--resume", "auto", *less)
        self.assertIn(f"at step {last} of {STEPS}", again.stderr)
        self.assertEqual(curve(self.run_dir), before)
        self.assertEqual(max(cli.checkpoints(self.run_dir)), last)

    def test_sigterm_saves_and_auto_resumes_bit_for_bit(self):
        for model in long_tests.some(("vit",), MODELS, "batch-norm: the run that is killed again and again"):
            with self.subTest(model):
                config = configuration(self.folder, model)
                whole = self.uninterrupted(config)
                stopped = self.run_until_step(config, 6, signal.SIGTERM)
                self.assertEqual(stopped.returncode, 130, stopped.stderr)
                done = max(cli.checkpoints(self.run_dir))
                self.assertIn(f"stopped by SIGTERM after step {done} of {STEPS}", cli.error_of(stopped))
                resumed = cli.finish(self.start(config))
                self.assertEqual(resumed.returncode, 0, resumed.stderr)
                self.assertIn(f"at step {done} of {STEPS}", resumed.stderr)
                self.assert_same_end(whole, self.run_dir)
                shutil.rmtree(whole)
                shutil.rmtree(self.run_dir)

    def test_a_run_killed_again_and_again_ends_bit_for_bit(self):
        kills_wanted = 6 if long_tests.RUN else 3
        steps = 5 * STEPS if long_tests.RUN else 3 * STEPS  # between what the test sees and its signal several may be done
        config = configuration(self.folder, "resnet8", optimizer="adamw", lr=0.003, steps=steps)
        whole = self.uninterrupted(config)
        moments = random.Random(7)
        kills = 0
        while steps not in cli.checkpoints(self.run_dir):
            process = self.start(config)
            if kills < kills_wanted:
                # In the start, in a step or while a checkpoint is written: wherever this moment falls.
                target = max(cli.checkpoints(self.run_dir), default=0) + moments.randint(1, EVERY + 2)
                cli.wait_until(lambda: any(line[0] >= min(target, steps - 1) for line in self.steps_so_far()), process)
                time.sleep(0.05 * moments.random())
                code = cli.stop(process, signal.SIGKILL).returncode
                self.assertIn(code, (0, -signal.SIGKILL))  # on a busy machine the run may have ended meanwhile
                kills += code != 0
                continue
            done = cli.finish(process)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreaterEqual(kills, 4 if long_tests.RUN else 2)
        self.assert_same_end(whole, self.run_dir, steps)
        whole_ones = {path.name for path in cli.checkpoints(self.run_dir).values()}
        there = {path.name for path in (self.run_dir / "checkpoints").iterdir()}
        self.assertEqual(there, whole_ones, "the kills left something behind")

    @long_tests.only("8 s")
    def test_another_topology_gets_the_same_tensors_and_samples(self):
        config = configuration(self.folder, "resnet8", precision="fp64")
        whole = self.uninterrupted(config)
        self.run_until_step(config, 9, signal.SIGTERM)
        at = max(cli.checkpoints(self.run_dir))
        shutil.copytree(cli.checkpoints(self.run_dir)[at], self.folder / "before")

        # No step to do: what was read is written again, by one stage and one replica.
        one = ["--set", "pipeline.stages=1", "--set", "replicas.local=1"]
        again = self.folder / "again"
        cli.must_run("train", config, "--resume", self.run_dir / "checkpoints" / f"step-{at}", "--run-dir", again,
                     "--set", f"train.steps={at}", *one)
        self.assert_same_tensors(self.folder / "before", cli.checkpoints(again)[at])

        done = cli.finish(self.start(config, *one))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([line[:3] for line in curve(self.run_dir)], [line[:3] for line in curve(whole)])
        self.assertEqual({line["replicas"] for line in cli.events(self.run_dir, "step")}, {1, 2})
        # Batch-norm normalises over other micro-batches now, so the losses part, but only slowly.
        next_loss, expected = curve(self.run_dir)[at][3], curve(whole)[at][3]
        self.assertLess(abs(next_loss - expected), 0.5 * expected)

    def test_without_batch_norm_another_topology_gives_the_same_curve(self):
        config = configuration(self.folder, "vit", precision="fp64")
        whole = self.uninterrupted(config)
        self.run_until_step(config, 9, signal.SIGTERM)
        done = cli.finish(self.start(
            config, "--set", "pipeline.stages=3", "--set", "replicas.local=1", "--set", "pipeline.chunks=5"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([line[:3] for line in curve(self.run_dir)], [line[:3] for line in curve(whole)])
        for (step, *_, loss), (*_, expected) in zip(curve(self.run_dir), curve(whole)):
            self.assertAlmostEqual(loss, expected, delta=1e-9 * expected, msg=f"step {step}")

    def damage(self, step):
        file = cli.checkpoints(self.run_dir)[step] / "model.safetensors"
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        return file

    def test_a_damaged_checkpoint_is_skipped_with_a_warning(self):
        config = configuration(self.folder, "resnet8")
        whole = self.uninterrupted(config)
        self.run_until_step(config, 2 * EVERY + 1, signal.SIGTERM)
        newest = max(cli.checkpoints(self.run_dir))
        older = max(step for step in cli.checkpoints(self.run_dir) if step < newest)
        self.damage(newest)
        done = cli.finish(self.start(config))
        self.assertEqual(done.returncode, 0, done.stderr)
        warnings = [line for line in done.stderr.splitlines() if " warning " in line and f"step-{newest}" in line]
        self.assertTrue(any("model.safetensors" in line for line in warnings), done.stderr)
        self.assertIn(f"at step {older} of {STEPS}", done.stderr)
        self.assert_same_end(whole, self.run_dir)

    def contents(self):
        return {path: path.read_bytes() for path in sorted(self.run_dir.rglob("*"))
                if path.is_file() and path.name not in ("log.txt", ".lock")}

    def test_a_run_whose_checkpoints_are_all_damaged_or_gone_is_refused_and_left_as_it_is(self):
        config = configuration(self.folder, "resnet8")
        cli.must_run("train", config, "--run-dir", self.run_dir, "--set", f"train.steps={2 * EVERY}")
        for step in cli.checkpoints(self.run_dir):
            self.damage(step)
        for how in ("is damaged", "are missing"):
            before = self.contents()
            for resume in long_tests.some(("auto",), ("auto", self.run_dir), "the folder is named"):
                done = cli.run("train", config, "--run-dir", self.run_dir, "--resume", resume)
                self.assertEqual(done.returncode, 7, done.stderr)
                self.assertIn(how, cli.error_of(done))
            self.assertEqual(self.contents(), before)
            for path in cli.checkpoints(self.run_dir).values():
                shutil.rmtree(path)

    @long_tests.only("two more runs")
    def test_a_run_whose_directory_is_renamed_touches_none_that_takes_its_place(self):
        config = configuration(self.folder, "resnet8")
        other = self.folder / "other"
        cli.must_run("train", config, "--run-dir", other, "--set", f"train.steps={EVERY}")
        process = cli.start("train", config, "--run-dir", self.run_dir, "--set", "train.steps=1000000",
                            "--set", "checkpoint.every_steps=50", "--set", "checkpoint.keep=1")
        cli.wait_until(lambda: cli.checkpoints(self.run_dir), process)
        before = {path.relative_to(other): path.read_bytes() for path in other.rglob("*") if path.is_file()}
        self.run_dir.rename(self.folder / "away")
        other.rename(self.run_dir)
        done = cli.finish(process)
        self.assertEqual(done.returncode, 8, done.stderr)
        self.assertIn("another directory is in its place, so nothing was saved", cli.error_of(done))
        self.assertEqual({path.relative_to(self.run_dir): path.read_bytes()
                          for path in self.run_dir.rglob("*") if path.is_file()}, before)

    def test_going_back_on_purpose_keeps_the_newer_checkpoints_until_there_is_another(self):
        config = configuration(self.folder, "resnet8")
        whole = self.uninterrupted(config)
        shutil.copytree(whole, self.run_dir)
        back = self.run_dir / "checkpoints" / f"step-{2 * EVERY}"
        before = self.contents()
        nothing_to_do = cli.run("train", config, "--resume", back, "--set", f"train.steps={2 * EVERY}")
        self.assertEqual(nothing_to_do.returncode, 2, nothing_to_do.stderr)
        self.assertIn(f"has trained on to step {STEPS}", cli.error_of(nothing_to_do))
        self.assertEqual(self.contents(), before)
        process = cli.start("train", config, "--resume", back, "--set", "checkpoint.every_steps=0",
                            "--set", "train.steps=1000000")
        metrics = self.run_dir / "metrics.jsonl"
        cli.wait_until(lambda: '"event":"step"' in metrics.read_text().partition('"event":"resume"')[2], process)
        cli.stop(process, signal.SIGKILL)
        self.assertEqual(max(cli.checkpoints(self.run_dir)), 2 * EVERY)
        aside = {path.name for path in (self.run_dir / "checkpoints").glob("*.left")}
        self.assertEqual(aside, {f"step-{step}.left" for step in cli.checkpoints(whole) if step > 2 * EVERY})
        done = cli.finish(self.start(config))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_same_end(whole, self.run_dir)
        self.assertEqual(list((self.run_dir / "checkpoints").glob("*.left")), [])

    def test_a_damaged_checkpoint_that_is_named_is_an_error(self):
        config = configuration(self.folder, "resnet8")
        cli.must_run("train", config, "--run-dir", self.run_dir, "--set", f"train.steps={EVERY}")
        file = self.damage(EVERY)
        done = cli.run("train", config, "--resume", file.parent)
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertIn(str(file), cli.error_of(done))


    def test_tensorboard_has_every_step_and_evaluation_once(self):
        try:
            from tensorboard.backend.event_processing import event_accumulator
        except ImportError as missing:
            self.skipTest(f"{missing}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")
        config = configuration(self.folder, "resnet8", eval_every_steps=EVERY)
        # Lengthened twice, which evaluates after the same step again, then gone back on purpose.
        cli.must_run("train", config, "--run-dir", self.run_dir, "--set", f"train.steps={EVERY + 1}")
        cli.must_run("train", config, "--run-dir", self.run_dir, "--resume", "auto", "--set", "train.steps=10")
        cli.must_run("train", config, "--run-dir", self.run_dir, "--resume", "auto", "--set", "train.steps=12")
        cli.must_run("train", config, "--resume", self.run_dir / "checkpoints" / "step-8", "--set", "train.steps=14")
        self.assertEqual(len(list((self.run_dir / "tensorboard").iterdir())), 4)
        board = event_accumulator.EventAccumulator(str(self.run_dir / "tensorboard"))
        board.Reload()
        steps, evaluations = cli.events(self.run_dir, "step"), cli.events(self.run_dir, "eval")
        epochs = cli.events(self.run_dir, "epoch")
        self.assertEqual([line["step"] for line in steps], list(range(1, 15)))
        for tag, lines, key in (("Loss/train", steps, "loss"), ("lr", steps, "lr"), ("Loss/val", evaluations, "loss"),
                                ("acc1/train", [line for line in steps if "top1" in line], "top1"),
                                ("samples_per_s", steps, "samples_per_s"), ("step_ms", steps, "step_ms"),
                                ("Loss/train_epoch", epochs, "loss"), ("acc1/val", evaluations, "top1")):
            found = [(point.step, point.value) for point in board.Scalars(tag)]
            self.assertEqual(found, [(line["step"], as_float32(line[key])) for line in lines], tag)

    @long_tests.only("the test before has epochs, too")
    def test_tensorboard_keeps_an_epoch_that_ended_with_the_checkpoint(self):
        try:
            from tensorboard.backend.event_processing import event_accumulator
        except ImportError as missing:
            self.skipTest(f"{missing}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")
        config = configuration(self.folder, "vit", eval_every_steps=1000)  # so the epoch is over before its checkpoint
        sets = ["--set", "checkpoint.every_steps=5"]
        cli.must_run("train", config, "--run-dir", self.run_dir, *sets, "--set", "train.steps=8")
        cli.must_run("train", config, "--resume", self.run_dir / "checkpoints" / "step-5", *sets, "--set", "train.steps=10")
        board = event_accumulator.EventAccumulator(str(self.run_dir / "tensorboard"))
        board.Reload()
        epochs = cli.events(self.run_dir, "epoch")
        self.assertEqual([line["step"] for line in epochs], [5, 10])
        self.assertEqual([(point.step, point.value) for point in board.Scalars("Loss/train_epoch")],
                         [(line["step"], as_float32(line["loss"])) for line in epochs])


if __name__ == "__main__":
    unittest.main(verbosity=2)
