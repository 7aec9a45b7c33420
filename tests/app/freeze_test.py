#!/usr/bin/env python3
"""A run whose layers freeze as the epochs go by ([freeze]), and whose pipeline shrinks then.

    freeze_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import json
import pathlib
import signal
import tempfile
import time
import unittest

import long_tests
import sluice_cli as cli

BATCHES = 8  # an epoch: 74 samples, 10 a step, 4 in the last
LONG = 60  # batches of an epoch that wins any change back
VIT = {"name": "vit", "size": "nano", "image_size": 16, "dropout": 0.1}  # 4 blocks: 10 layers
RESNET8 = {"name": "resnet8", "image_size": 16}  # 3 blocks: 5 layers
LINEAR = {"policy": "linear"}
# ceil(4 (1 - (2/3)^epoch)): blocks, and the layers that freeze with them: embeddings and two a block.
FROZEN = {0: 0, 1: 5, 2: 7, 3: 7, 4: 9}
FILES = ("model.safetensors", "optimizer.safetensors")


def configuration(folder, freeze, model=None, **tables):
    """2 stages, 1 replica a process to begin with."""
    return cli.write_config(
        folder / f"run{len(list(folder.glob('*.toml')))}.toml",
        device={"list": "cpu"},
        model=model or VIT,
        data={"name": "shapes", "samples": 74, "crop_padding": 2, "flip": True, "workers": 1, **tables.get("data", {})},
        train={"epochs": 6, "global_batch": 10, "lr": 0.003, "optimizer": "adamw", "weight_decay": 1e-2, "clip_norm": 1.0,
               "lr_schedule": "onecycle", "seed": 3, **tables.get("train", {})},
        pipeline={"stages": 2, "chunks": 2, **tables.get("pipeline", {})},
        replicas={"connect_timeout_s": 10, "hang_timeout_s": 10},
        freeze=freeze,
        checkpoint={"every_steps": 5, "keep": 100})


def tensors_of(path):
    """{name: bytes} of a safetensors file."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    return {name: data[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]] for name, entry in header.items()}


class FreezeTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def train(self, config, name, *arguments, processes=1):
        run_dir = self.folder / name
        return run_dir, cli.must_run_ranks(processes, "train", config, "--run-dir", run_dir, *arguments)

    def assert_close(self, ours, theirs, tolerance):
        self.assertEqual(len(ours), len(theirs))
        for step, (one, other) in enumerate(zip(ours, theirs), 1):
            self.assertLessEqual(abs(one - other), tolerance * other, f"step {step}")

    def test_the_plan_is_told_before_the_run(self):
        dry = json.loads(cli.must_run("train", configuration(self.folder, LINEAR), "--dry-run", "--json").stdout)
        self.assertEqual([(change["after"], change["freeze"]["epoch"], change["freeze"]["units"],
                           change["plan"]["frozen_layers"]) for change in dry["changes"]],
                         [(8, 1, 2, 5), (16, 2, 3, 7), (32, 4, 4, 9)])
        for change in dry["changes"]:
            self.assertEqual(sum(change["plan"]["partition"]) + change["plan"]["frozen_layers"], 10)
        text = cli.must_run("train", configuration(self.folder, LINEAR), "--dry-run").stdout
        self.assertIn("after step 16: epoch 3 (2 in freeze.schedule and metrics.jsonl), 3 of 4 blocks frozen: ", text)

    def test_records_say_what_is_frozen_and_what_was_predicted(self):
        run_dir, _ = self.train(configuration(self.folder, LINEAR), "run", processes=2)
        steps = cli.events(run_dir, "step")
        for line in steps:
            self.assertEqual(line["frozen_layers"], FROZEN[min(line["epoch"], 4)], line["step"])
        self.assertEqual([(line["step"], line["units"]) for line in cli.events(run_dir, "freeze")], [(8, 2), (16, 3), (32, 4)])
        for line in cli.events(run_dir, "transition"):
            self.assertGreater(line["predicted_ms"], 0)
            self.assertGreater(line["measured_before_ms"], 0)
        # What is in step is what is trained: the last checkpoint's parameters without those of the frozen layers.
        tensors = tensors_of(cli.checkpoints(run_dir)[48] / "model.safetensors")
        head = sum(len(value) for name, value in tensors.items() if name.startswith(("classifier", "vit.layernorm")))
        self.assertLess(abs(steps[-1]["sync_bytes"] - head), 64 * 4, "in whole cache lines")
        self.assertGreater(steps[0]["sync_bytes"], steps[8]["sync_bytes"])

    def test_frozen_layers_do_not_move_and_keep_their_optimizer_state(self):
        run_dir, _ = self.train(configuration(self.folder, {"policy": "schedule", "schedule": ["1: 2", "3: 1", "4: 0"]}), "run")
        self.assertEqual(sorted(set(cli.column(run_dir, "frozen_layers"))), [0, 3, 5])
        ends = cli.checkpoints(run_dir)
        tensors = {step: {name: tensors_of(ends[step] / name) for name in FILES} for step in (10, 20, 30, 40)}
        for name in FILES:
            for tensor, value in tensors[10][name].items():
                is_first = "embeddings" in tensor or "layer.0." in tensor
                is_second = "layer.1." in tensor
                moved = {step: tensors[step][name][tensor] != tensors[step - 10][name][tensor] for step in (20, 30, 40)}
                self.assertEqual(moved[20], not (is_first or is_second), tensor)  # frozen from step 8 to 24
                self.assertEqual(moved[30], not is_first, tensor)  # from 8 to 32
                self.assertTrue(moved[40], f"{tensor} is trained again")
                self.assertTrue(any(value), f"{tensor} holds zeros")

    @long_tests.only("15 s")
    def test_an_elastic_pipeline_learns_what_a_rigid_one_does(self):
        tables = {"train": {"precision": "fp64", "steps": 2 * LONG + 10}, "data": {"samples": 10 * LONG}}
        rigid, _ = self.train(configuration(self.folder, {**LINEAR, "elastic": False}, **tables), "rigid")
        plain, _ = self.train(configuration(self.folder, {"policy": "none"}, **tables), "plain")
        self.assertEqual(cli.column(rigid, "loss")[:LONG], cli.column(plain, "loss")[:LONG])
        self.assertNotEqual(cli.column(rigid, "loss")[LONG + 1:], cli.column(plain, "loss")[LONG + 1:], "freezing is no pretence")
        for processes in (1, 2):
            elastic, _ = self.train(configuration(self.folder, LINEAR, **tables), f"elastic{processes}", processes=processes)
            self.assertIn(1, cli.column(elastic, "stages"))
            self.assertIn(2 * processes, cli.column(elastic, "replicas"))
            self.assert_close(cli.column(elastic, "loss"), cli.column(rigid, "loss"), 1e-9)

    def test_in_float32_the_first_step_after_a_change_is_the_same(self):
        tables = {"train": {"steps": LONG + 5}, "data": {"samples": 10 * LONG}}
        rigid, _ = self.train(configuration(self.folder, {**LINEAR, "elastic": False}, **tables), "rigid")
        elastic, _ = self.train(configuration(self.folder, LINEAR, **tables), "elastic")
        self.assertIn(1, cli.column(elastic, "stages"))
        self.assert_close(cli.column(elastic, "loss")[:LONG + 1], cli.column(rigid, "loss")[:LONG + 1], 1e-5)

    def test_gradients_decide_the_same_in_one_process_and_in_two(self):
        """Rank 0 decides; as long as it sees the same gradients, it decides the same whatever the shape."""
        fp64 = {"train": {"precision": "fp64"}}
        for policy in long_tests.some(("gradient",), ("gradient", "gradient-change"), "tests/freeze has the rules"):
            one, _ = self.train(configuration(self.folder, {"policy": policy}, **fp64), f"{policy}1")
            two, _ = self.train(configuration(self.folder, {"policy": policy}, **fp64), f"{policy}2", processes=2)
            decisions = [[(line["step"], line["units_before"], line["units"]) for line in cli.events(run, "freeze")]
                         for run in (one, two)]
            self.assertEqual(*decisions)
            self.assertEqual([step for step, _, _ in decisions[0]], [8, 16, 24, 32, 40])
            self.assertEqual(cli.column(one, "frozen_layers"), cli.column(two, "frozen_layers"))
            self.assert_close(cli.column(one, "loss"), cli.column(two, "loss"), 1e-9)
            frozen = cli.column(one, "frozen_layers")
            self.assertEqual(frozen, sorted(frozen), "nothing thaws")
            self.assertGreater(frozen[-1], 0, policy)
            for line in cli.events(one, "freeze"):
                self.assertEqual(line["terms"]["epoch"], line["epoch"])
                if policy == "gradient":
                    self.assertLessEqual(line["frozen_layers"], FROZEN[min(line["epoch"], 4)])
                active = [unit for unit in range(4) if unit >= line["units_before"]]
                for unit in active:
                    self.assertGreater(line["terms"][f"norm_{unit}"], 0)

    def test_gradients_of_half_an_epoch_decide_nothing(self):
        config = configuration(self.folder, {"policy": "gradient"})
        run_dir, _ = self.train(config, "run", "--set", "train.steps=12")  # one decision, at step 8
        self.assertGreater(cli.column(run_dir, "frozen_layers")[-1], 0)
        self.train(config, "run", "--resume", "auto")
        events = {line["step"]: line for line in cli.events(run_dir, "freeze")}
        self.assertEqual(sorted(events), [8, 16, 24, 32, 40])
        self.assertEqual(events[16]["units"], events[8]["units"], "steps 8 to 12 were not seen")
        self.assertNotIn("norm_3", events[16]["terms"])
        self.assertIn("norm_3", events[24]["terms"])
        self.assertEqual(cli.column(run_dir, "frozen_layers")[12], cli.column(run_dir, "frozen_layers")[11], "it goes on as it was")

    def test_a_survivor_saves_what_the_next_decision_compares_with(self):
        run_dir = self.folder / "run"
        done = cli.finish_all(cli.start_ranks(2, "train", configuration(self.folder, {"policy": "gradient"}), "--run-dir", run_dir,
                                              environments_of={0: {"SLUICE_KILL_AT": f"weights-updated:{2 * BATCHES}"}}))
        self.assertIn("rank 0 is lost: saved the state after step 16", done[1].stderr)
        of_rank_0, of_survivor = (json.loads((cli.checkpoints(run_dir)[step] / "state.json").read_text(encoding="utf-8"))["norms"]
                                  for step in (15, 16))
        self.assertEqual(of_survivor, of_rank_0, "those of the first epoch")

    def test_what_may_not_shrink_stays(self):
        for switch in long_tests.some(({"replicas": False},), ({"elastic": False}, {"replicas": False}), "rigid pipelines train above"):
            run_dir, _ = self.train(configuration(self.folder, {**LINEAR, **switch}), str(switch))
            self.assertEqual(set(cli.column(run_dir, "replicas")), {1}, switch)
            self.assertEqual(cli.column(run_dir, "stages")[16], 2, switch)
            self.assertEqual(cli.column(run_dir, "stages")[-1], 1, "one layer is left")

    def test_killed_it_goes_on_in_the_shape_it_was_in(self):
        """Byte for byte, since train.deterministic keeps the shape."""
        for processes in long_tests.some((2,), (1, 2), "two processes have all that one has"):
            config = configuration(self.folder, LINEAR, RESNET8 if processes == 2 else VIT, train={"deterministic": True})
            whole, _ = self.train(config, f"whole{processes}", processes=processes)
            run_dir = self.folder / f"run{processes}"
            for transitions in long_tests.some((1, 3), (1, 2, 3), "after the second change"):
                self.kill_after(transitions, config, run_dir, processes)
            self.train(config, run_dir.name, "--resume", "auto", processes=processes)
            self.assertEqual(cli.column(run_dir, "loss"), cli.column(whole, "loss"))
            self.assertEqual(cli.column(run_dir, "frozen_layers"), cli.column(whole, "frozen_layers"))
            ends = [cli.checkpoints(run)[48] for run in (whole, run_dir)]
            for name in FILES:
                self.assertEqual((ends[0] / name).read_bytes(), (ends[1] / name).read_bytes(), name)

    def kill_after(self, transitions, config, run_dir, processes):
        metrics = run_dir / "metrics.jsonl"
        words = ["train", config, "--run-dir", run_dir, "--resume", "auto"]
        started = cli.start_ranks(processes, *words) if processes > 1 else [cli.start(*words)]
        while started[0].poll() is None:
            if metrics.exists() and metrics.read_text(encoding="utf-8").count('"transition"') >= transitions:
                break
            time.sleep(0.001)
        started[-1].send_signal(signal.SIGKILL)
        cli.finish_all(started)

    def test_a_resume_keeps_the_plans_that_were_decided(self):
        config = configuration(self.folder, LINEAR, pipeline={"cost_cache": "off"})
        run_dir, _ = self.train(config, "run", "--set", "train.epochs=3")
        _, done = self.train(config, "run", "--resume", "auto")
        self.assertEqual(cli.column(run_dir, "frozen_layers"), [FROZEN[min(step // BATCHES, 4)] for step in range(48)])
        state = json.loads((cli.checkpoints(run_dir)[45] / "state.json").read_text(encoding="utf-8"))
        self.assertEqual(state["plan"]["frozen_layers"], 9)
        self.assertEqual(done[0].returncode, 0)
        # Without freezing, what was frozen is trained again.
        thawed, _ = self.train(configuration(self.folder, {"policy": "none"}, train={"epochs": 7}), "run", "--resume", "auto")
        self.assertEqual(cli.column(thawed, "frozen_layers")[48:], [0] * BATCHES)

    def test_what_cannot_be_ends_the_run_at_its_start(self):
        refused = [
            ({"policy": "schedule", "schedule": ["3: 2", "2: 1"]}, {}, "freeze.schedule"),
            (LINEAR, {"pipeline": {"changes": ["3: stages = 1"]}}, "both change the plan"),
            ({"policy": "gradient"}, {"train": {"deterministic": True}}, "cannot be combined with train.deterministic"),
            ({"policy": "schedule", "schedule": ["3: 5"]}, {}, "freeze.schedule"),
            ({"policy": "schedule", "schedule": ["three: 5"]}, {}, "freeze.schedule"),
            ({"policy": "schedule"}, {}, "needs freeze.schedule"),
            ({"policy": "lineer"}, {}, "did you mean 'linear'?"),
            (LINEAR, {"pipeline": {"schedule": "interleaved", "stages": 2}}, "choose 1f1b")]
        for freeze, tables, text in long_tests.some(refused[:3], refused, "one of each kind"):
            with self.subTest(freeze=freeze, tables=tables):
                done = cli.run("train", configuration(self.folder, freeze, **tables), "--run-dir", self.folder / "none")
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(text, cli.error_of(done))
                self.assertEqual(len(cli.error_of(done).splitlines()), 1)
                self.assertFalse((self.folder / "none").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
