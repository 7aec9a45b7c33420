#!/usr/bin/env python3
"""A run that changes its plan on the way (pipeline.changes) learns what it would have learned, and survives kills there.

    plan_changes_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import json
import pathlib
import random
import signal
import tempfile
import time
import unittest

import long_tests
import sluice_cli as cli

STEPS = 24
IN_TIME_S = 30
RESNET8 = {"name": "resnet8", "image_size": 16}
CUT = {"partition": [2, 3]}  # of its five layers
VIT = {"name": "vit", "size": "nano", "image_size": 16, "dropout": 0.1}
FILES = ("model.safetensors", "optimizer.safetensors")
# What a change may change about how a run is done: 1 to 3 stages and replicas, four schedules, other chunks and cuts.
SHAPES = ["stages = 3", "stages = 1, replicas = 3, chunks = 1", "replicas = 2, schedule = gpipe, chunks = 2",
          'stages = 2, partition = [3, 7], recompute = ["layer", "none"]',
          "schedule = zb-h1, recompute = layer", "replicas = 1, recompute = none",
          "schedule = interleaved, chunks = 4, partition = auto", "stages = 1, schedule = 1f1b, chunks = 3"]

# Where engine::Engine::apply may be killed, in this order.
MOMENTS = ("plan-checked", "plan-agreed", "plan-captured", "plan-given-up", "plan-composed", "plan-taken")


def changes_at(steps, shapes):
    """Entries of pipeline.changes: shapes one after the other, again and again."""
    return [f"{step}: {shapes[number % len(shapes)]}" for number, step in enumerate(steps)]


def configuration(folder, model, changes, **tables):
    """10 samples a step, 4 in the last of an epoch of 8; 2 stages, 1 replica a process to begin with."""
    return cli.write_config(
        folder / f"run{len(list(folder.glob('*.toml')))}.toml",
        device={"list": "cpu", **tables.get("device", {})},
        model=model,
        data={"name": "shapes", "samples": 74, "crop_padding": 2, "flip": True, "workers": 2},
        train={"deterministic": True, "steps": STEPS, "global_batch": 10, "lr": 0.003, "optimizer": "adamw",
               "weight_decay": 1e-3, "lr_schedule": "onecycle", "seed": 3, **tables.get("train", {})},
        pipeline={"stages": 2, "chunks": 2, "changes": changes, **tables.get("pipeline", {})},
        replicas={"connect_timeout_s": 10, "hang_timeout_s": 10},
        checkpoint={"every_steps": 5, "keep": 100},
        log={"csv": True})


def places(run_dir):
    """[(step, epoch, batch, samples)] of metrics.jsonl."""
    return [(line["step"], line["epoch"], line["batch"], line["samples"]) for line in cli.events(run_dir, "step")]


def losses(run_dir):
    return [line["loss"] for line in cli.events(run_dir, "step")]


def without_lines_lost(run_dir, whole, kills):
    """The whole run's steps that run_dir recorded, and whether all but one for each kill are there: rank 0 may die when the
    others have finished a step that it has not written yet."""
    steps = cli.column(run_dir, "step")
    return [loss for step, loss in enumerate(losses(whole), 1) if step in steps], STEPS - len(steps) <= kills


def shapes(run_dir):
    """(stages, all replicas) of each step."""
    return [(line["stages"], line["replicas"]) for line in cli.events(run_dir, "step")]


def state_but_for_changes(checkpoint):
    state = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
    return {key: state[key] for key in ("step", "position", "evaluation_due", "optimizer_steps", "plan", "data")}


class PlanChangesTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def train(self, processes, config, name, *arguments):
        """Ends well in every process."""
        run_dir = self.folder / name
        return run_dir, cli.must_run_ranks(processes, "train", config, "--run-dir", run_dir, *arguments)

    def assert_same_end(self, one, other, kills=0):
        expected, are_there = without_lines_lost(other, one, kills)
        self.assertTrue(are_there)
        self.assertEqual(expected, losses(other))
        if kills == 0:
            self.assertEqual(places(one), places(other))
        ends = [cli.checkpoints(run)[STEPS] for run in (one, other)]
        for name in FILES:
            self.assertEqual((ends[0] / name).read_bytes(), (ends[1] / name).read_bytes(), name)
        self.assertEqual(*map(state_but_for_changes, ends))

    def test_the_same_plan_twice_changes_no_bit(self):
        grid = [(processes, model) for processes in (1, 2) for model in (RESNET8, VIT)]
        for processes, model in long_tests.some([(2, RESNET8)], grid, "the other model, one process"):
            with self.subTest(processes=processes, model=model["name"]):
                name = f"{model['name']}{processes}"
                cut = CUT if model is RESNET8 else {"partition": [4, 6]}
                whole, _ = self.train(processes, configuration(self.folder, model, [], pipeline=cut), f"{name}-whole")
                changed, _ = self.train(
                    processes, configuration(self.folder, model, ["3: stages = 2", "4: stages = 2"], pipeline=cut), name)
                self.assertEqual([line["step"] for line in cli.events(changed, "transition")], [3, 4])
                self.assert_same_end(whole, changed)

    def test_other_plans_see_the_same_samples_and_compute_the_same(self):
        model = {**VIT, "dropout": 0.1}
        fp64 = {"precision": "fp64"}
        whole, _ = self.train(1, configuration(self.folder, model, [], train=fp64), "whole")
        changes = changes_at(range(2, STEPS, 2), SHAPES)
        config = configuration(self.folder, model, changes, train=fp64)
        for processes in (1, 2):
            with self.subTest(processes=processes):
                changed, _ = self.train(processes, config, f"changed{processes}")
                self.assertEqual(places(changed), places(whole))
                for step, (loss, expected) in enumerate(zip(losses(changed), losses(whole)), 1):
                    self.assertLess(abs(loss - expected), 1e-10 * expected, f"step {step}")
                self.assertEqual({stages for stages, _ in shapes(changed)}, {1, 2, 3})
                self.assertEqual({replicas for _, replicas in shapes(changed)}, {processes, 2 * processes, 3 * processes})

    def test_records_follow_the_shape(self):
        config = configuration(self.folder, RESNET8, ["6: stages = 1, partition = auto, replicas = 3", "12: chunks = 1"],
                               pipeline=CUT)
        run_dir, done = self.train(1, config, "run")
        self.assertEqual(shapes(run_dir), 6 * [(2, 1)] + (STEPS - 6) * [(1, 3)])
        plans = [[plan[key] for key in ("stages", "replicas", "chunks", "partition")] for plan in cli.events(run_dir, "plan")]
        self.assertEqual(plans, [[2, 1, 2, [2, 3]], [1, 3, 2, [5]], [1, 3, 1, [5]]])
        transitions = cli.events(run_dir, "transition")
        self.assertEqual([line["step"] for line in transitions], [6, 12])
        self.assertEqual([transitions[0][end]["stages"] for end in ("from", "to")], [2, 1])
        self.assertEqual([transitions[1][end]["chunks"] for end in ("from", "to")], [2, 1])
        rows = (run_dir / "metrics.csv").read_text(encoding="utf-8").splitlines()
        heading = rows[0].split(",")
        self.assertEqual([(int(row.split(",")[heading.index("stages")]), int(row.split(",")[heading.index("replicas")]))
                          for row in rows[1:]], shapes(run_dir))
        events = b"".join(file.read_bytes() for file in (run_dir / "tensorboard").iterdir())
        self.assertEqual(events.count(b"```json"), 3, "a text for each plan")
        summary = cli.events(run_dir, "summary")[0]
        self.assertEqual({(place["replica"], place["stage"]) for place in summary["breakdown"]},
                         {(0, 0), (0, 1), (1, 0), (2, 0)})
        self.assertLessEqual({"cpu:0", "cpu:1", "cpu:2"}, set(summary["peak_memory_bytes"]))
        report = json.loads(cli.must_run("report", run_dir, "--json").stdout)
        text = cli.must_run("report", run_dir).stdout
        self.assertIn("2 transitions", text)
        self.assertIn("note: the plan changed 2 times", text)
        self.assertIn("1 stage x 3 replicas", text)
        self.assertEqual([report["runs"][0][key] for key in ("stages", "replicas", "chunks")], [1, 3, 1])
        self.assertEqual(done[0].stderr.count("changed in "), 2)
        dry = json.loads(cli.must_run("train", config, "--dry-run", "--json").stdout)
        self.assertEqual([(change["after"], change["plan"]["replicas"]) for change in dry["changes"]], [(6, 3), (12, 3)])

    def test_a_change_that_cannot_work_ends_the_run_at_its_start(self):
        refused = [("9: stages = 3", 2, "pipeline.partition has 2 entries"),
                   ("9: schedule = dualpipe-v, chunks = 1, partition = auto", 2, "the change after step 9"),
                   ("9: stagse = 3", 2, "did you mean 'stages'?"), ("9: stages = 9, partition = auto", 2, "9 stages"),
                   ("9: partition = [2, 2]", 2, "the change after step 9"), ("9: replicas = 11", 2, "replicas.local=11")]
        for change, code, text in long_tests.some(refused[:2], refused, "one of each kind"):
            with self.subTest(change):
                done = cli.run("train", configuration(self.folder, RESNET8, [change], pipeline=CUT), "--run-dir", self.folder / "none")
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(text, cli.error_of(done))
                self.assertEqual(len(cli.error_of(done).splitlines()), 1)
                self.assertFalse((self.folder / "none").exists())

    def test_a_change_after_the_end_gives_a_warning(self):
        config = configuration(self.folder, RESNET8, ["24: stages = 1", "99: replicas = 2"])
        run_dir, done = self.train(1, config, "run")
        self.assertEqual(done[0].stderr.count("never happens: the run ends at step 24"), 2)
        self.assertEqual(cli.events(run_dir, "transition"), [])

    def test_a_memory_limit_holds_during_changes(self):
        changes = changes_at(range(2, STEPS, 2), ["stages = 1", "stages = 2, replicas = 2", "stages = 3", "stages = 1, replicas = 1", "stages = 2"])
        free, _ = self.train(1, configuration(self.folder, RESNET8, changes), "free")
        peaks = {name: peak for name, peak in cli.events(free, "summary")[0]["peak_memory_bytes"].items() if "cpu:" in name}
        self.assertGreaterEqual(len(peaks), 4)
        limit = int(1.25 * max(peaks.values()))
        limited, _ = self.train(1, configuration(self.folder, RESNET8, changes, device={"memory_limit": limit}), "limited")
        self.assertEqual(losses(limited), losses(free))
        for name, peak in cli.events(limited, "summary")[0]["peak_memory_bytes"].items():
            self.assertTrue("cpu:" not in name or peak <= limit, f"{name}: {peak} of {limit}")

    def test_a_plan_whose_state_does_not_fit_ends_the_run_at_its_start(self):
        dry = json.loads(cli.must_run("train", configuration(self.folder, VIT, []), "--dry-run", "--json").stdout)
        states = [4 * stage["bytes"] for stage in dry["stage_list"]]  # parameters, gradients, two of adamw
        config = configuration(self.folder, VIT, ["9: stages = 1"],
                               device={"memory_limit": (max(states) + sum(states)) // 2})
        done = cli.run("train", config, "--run-dir", self.folder / "run")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("the change after step 9", cli.error_of(done))
        self.assertIn("device.memory_limit", cli.error_of(done))
        self.assertEqual(cli.events(self.folder / "run"), [])

    def kill_until_it_ends(self, processes, config, run_dir, moments, least):
        """Kills a process at such moments, and starts the run again, until it is over."""
        kills, resumes = 0, 0
        while STEPS not in cli.checkpoints(run_dir):
            words = ["train", config, "--run-dir", run_dir, "--resume", "auto"]
            resumes += bool(cli.checkpoints(run_dir))
            started = cli.start_ranks(processes, *words) if processes > 1 else [cli.start(*words)]
            victim = moments.randrange(processes)
            if kills < least:
                self.wait_for_a_moment(run_dir, started[0], resumes, moments)
                started[victim].send_signal(signal.SIGKILL)
            begin = time.monotonic()
            done = cli.finish_all(started)
            codes = [process.returncode for process in done]
            if kills >= least:
                self.assertEqual(codes, [0] * processes, [process.stderr for process in done])
            elif codes[victim] != 0:
                kills += 1
                self.assertLess(time.monotonic() - begin, IN_TIME_S)
                for rank, process in enumerate(done):
                    if rank != victim:
                        self.assertEqual(process.returncode, 5, process.stderr)
                        self.assertIn(f"rank {victim}", cli.error_of(process))
        return kills

    @staticmethod
    def wait_for_a_moment(run_dir, process, resumes, moments):
        """When it has gone on, a seeded number of further changes, and a little more."""
        def count(file, what):
            return (run_dir / file).read_text(encoding="utf-8").count(what) if (run_dir / file).exists() else 0

        changes = max(cli.checkpoints(run_dir), default=0) + moments.randint(1, 6)  # there is one after every step
        while process.poll() is None and (count("log.txt", "resumed from") < resumes or
                                          count("metrics.jsonl", '"transition"') < min(changes, STEPS - 2)):
            time.sleep(0.001)
        time.sleep(0.06 * moments.random())

    @long_tests.only("random moments; CI kills at each named moment of a change once")
    def test_killed_in_and_around_changes_it_ends_bit_for_bit(self):
        changes = changes_at(range(1, STEPS), ["stages = 1, partition = auto, replicas = 2", "stages = 3, partition = [1, 2, 2]",
                                               "stages = 2, partition = [2, 3], replicas = 1"])
        config = configuration(self.folder, RESNET8, changes, pipeline=CUT)
        for processes, least in ((1, 5), (2, 4)):
            with self.subTest(processes=processes):
                whole, _ = self.train(processes, config, f"whole{processes}")
                run_dir = self.folder / f"run{processes}"
                kills = self.kill_until_it_ends(processes, config, run_dir, random.Random(5 + processes), least)
                self.assertGreaterEqual(kills, 1)
                self.assert_same_end(whole, run_dir, kills if processes > 1 else 0)
                if processes == 1:
                    self.assertEqual(shapes(run_dir), shapes(whole))
                steps = [[line["step"] for line in cli.events(run, "transition")] for run in (whole, run_dir)]
                self.assertEqual(*steps)

    def test_killed_at_every_moment_of_a_change_it_ends_bit_for_bit(self):
        """In prepare, agree and commit: rank 0 or the last rank dies there, in each of three changes."""
        changes = changes_at((6, 11, 17), ["stages = 1, partition = auto, replicas = 2", "stages = 3, partition = [1, 2, 2]",
                                           "stages = 2, partition = [2, 3], replicas = 1"])
        config = configuration(self.folder, RESNET8, changes, pipeline=CUT)
        for processes in (1, 2):
            whole, _ = self.train(processes, config, f"whole{processes}")
            moments = list(enumerate(MOMENTS))
            for number, moment in long_tests.some(moments[processes % 2::3], moments, "a third of the moments"):
                with self.subTest(processes=processes, moment=moment):
                    run_dir = self.folder / f"{moment}{processes}"
                    change = 1 + number % 3
                    victim = number // 2 % processes
                    done = cli.finish_all(cli.start_ranks(
                        processes, "train", config, "--run-dir", run_dir,
                        environments_of={victim: {"SLUICE_KILL_AT": f"{moment}:{change}"}}))
                    self.assertEqual([process.returncode for process in done],
                                     [-signal.SIGKILL if rank == victim else 5 for rank in range(processes)])
                    # The one that lives saves the state at which the plan was to change.
                    newest = (5, 10, 15) if processes == 1 else (6, 11, 17)
                    self.assertEqual(max(cli.checkpoints(run_dir)), newest[change - 1])
                    self.train(processes, config, run_dir.name, "--resume", "auto")
                    self.assert_same_end(whole, run_dir)

    def test_a_resume_keeps_the_plans_that_were_decided(self):
        """The cuts are open, and measuring again might give others."""
        unkept = {"cost_cache": "off"}
        config = configuration(self.folder, VIT, ["3: stages = 3", "9: replicas = 2, chunks = 1"], pipeline=unkept)
        run_dir, _ = self.train(1, config, "run", "--set", "train.steps=5")
        changes = json.loads((cli.checkpoints(run_dir)[5] / "state.json").read_text(encoding="utf-8"))["changes"]
        self.assertEqual([(change["after"], change["refused"]) for change in changes], [(3, False), (9, False)])
        _, done = self.train(1, config, "run", "--resume", "auto")
        self.assertNotIn("measuring", done[0].stderr)
        self.assertEqual([line["to"] for line in cli.events(run_dir, "transition")], [change["plan"] for change in changes])
        self.assertEqual(shapes(run_dir), 3 * [(2, 1)] + 6 * [(3, 1)] + (STEPS - 9) * [(3, 2)])

    def test_changes_may_be_others_after_a_resume(self):
        first = configuration(self.folder, RESNET8, ["8: replicas = 2"], train={"steps": 15}, pipeline=CUT)
        run_dir, _ = self.train(1, first, "run")
        second = configuration(self.folder, RESNET8, ["8: replicas = 3", "20: replicas = 1"], pipeline=CUT)
        _, done = self.train(1, second, "run", "--resume", "auto")
        self.assertEqual([replicas for _, replicas in shapes(run_dir)], 8 * [1] + 7 * [2] + 5 * [3] + 4 * [1])
        self.assertIn("resumed", done[0].stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
