#!/usr/bin/env python3
"""`pipeline.order`: training runs the order that a file has, and refuses one that cannot be run.

    schedule_file_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import json
import pathlib
import re
import shutil
import signal
import tempfile
import unittest

import long_tests
import sluice_cli as cli

STEPS, EVERY = 6, 2
STOPPED_STEPS = 60
# Micro-batch 1 runs before 0, and one backward is split.
BY_HAND = "# by hand\n0F1 0F0 0F2 0I1 0B0 0B2 0W1\n1F1 1B1 1F0 1B0 1F2 1B2\n"


def configuration(folder, name="run", **changes):
    """Shuffled, with dropout, and a last batch that leaves micro-batches empty."""
    tables = {
        "device": {"list": "cpu", "threads": 1},
        "model": {"name": "vit", "size": "nano", "image_size": 16, "dropout": 0.1},
        "data": {"name": "shapes", "samples": 38},
        "train": {"deterministic": True, "steps": STEPS, "global_batch": 16, "lr": 0.05, "seed": 3},
        "pipeline": {},
        "replicas": {"connect_timeout_s": 60},
        "checkpoint": {"every_steps": EVERY, "keep": 100}}
    return cli.write_config(folder / f"{name}.toml",
                            **{table: {**values, **changes.get(table, {})} for table, values in tables.items()})


def losses(run_dir):
    return [(line["step"], line["loss"]) for line in cli.events(run_dir, "step")]


class OrderTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.run_dir = self.folder / "run"
        self.file = self.folder / "mine.txt"

    def order(self, text):
        self.file.write_text(text, encoding="utf-8")
        return self.file

    def by_hand(self):
        return configuration(self.folder, pipeline={"order": str(self.order(BY_HAND))})

    def must_train(self, config, run_dir, size):
        words = ("train", config, "--run-dir", run_dir)
        done = cli.finish_all(cli.start_ranks(size, *words)) if size > 1 else [cli.run(*words)]
        self.assertEqual([process.returncode for process in done], [0] * size, [process.stderr for process in done])

    def assert_same_end(self, one, other, steps=STEPS):
        self.assertEqual(losses(one), losses(other))
        self.assertEqual(len(losses(one)), steps)
        for name in ("model.safetensors", "optimizer.safetensors"):
            mine, expected = (cli.checkpoints(run)[steps] / name for run in (one, other))
            self.assertEqual(mine.read_bytes(), expected.read_bytes(), name)

    def assert_refused(self, config, *parts, sets=()):
        words = [word for key in sets for word in ("--set", key)]
        done = cli.run("train", config, "--run-dir", self.run_dir, *words)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        for part in parts:
            self.assertIn(str(part), cli.error_of(done))
        self.assertFalse(self.run_dir.exists())

    @long_tests.only("9 s")
    def test_what_sluice_schedule_writes_trains_as_the_named_schedule_does(self):
        layers = len(self.partition(configuration(self.folder)))
        self.assertGreaterEqual(layers, 4)
        shapes = ((1, "1f1b", 3, 1), (2, "zb-v", 2, 2), (1, "dualpipe-v", 2, 2), (1, "gpipe", 2, 1), (2, "zb-h1", 2, 1),
                  (1, "interleaved", 2, 2))
        for size, name, stages, virtual in shapes:
            with self.subTest(f"{name} on {size} processes"):
                cli.must_run("schedule", name, "--stages", stages, "--chunks", 4, "--text", self.file)
                cut = [1] * (stages * virtual - 1) + [layers - stages * virtual + 1]
                named = configuration(self.folder, "named", pipeline={
                    "schedule": name, "stages": stages, "chunks": 4, "partition": cut})
                ordered = configuration(self.folder, "ordered", pipeline={"order": str(self.file), "partition": cut})
                self.must_train(named, self.folder / "one", size)
                self.must_train(ordered, self.folder / "other", size)
                self.assert_same_end(self.folder / "one", self.folder / "other")
                self.assertEqual(cli.events(self.folder / "other", "plan")[0]["schedule"], f"order from {self.file}")
                for run in ("one", "other"):
                    shutil.rmtree(self.folder / run)

    def partition(self, config):
        """One number for each layer of the model."""
        plan = json.loads(cli.must_run("train", config, "--dry-run", "--json").stdout)
        return [1] * sum(plan["partition"])

    def test_only_rank_0_has_the_file(self):
        folders = [self.folder / str(rank) for rank in range(2)]
        for folder in folders:
            folder.mkdir()
        (folders[0] / "mine.txt").write_text(BY_HAND, encoding="utf-8")
        config = configuration(self.folder, pipeline={"order": "mine.txt"}).resolve()
        port = cli.free_port()
        done = cli.finish_all([
            cli.start("train", config, "--run-dir", self.run_dir, env=cli.rank_environment(rank, 2, port),
                      cwd=folders[rank]) for rank in range(2)])
        self.assertEqual([process.returncode for process in done], [0, 0], [process.stderr for process in done])
        self.must_train(self.by_hand(), self.folder / "whole", 2)
        self.assert_same_end(self.run_dir, self.folder / "whole")

    def test_a_wrong_order_is_refused_with_its_line(self):
        config = configuration(self.folder, pipeline={"order": str(self.file)})
        wrong = (("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1", "mine.txt:2: ", "'progress'", "(device 1 is line 2, device 0 is line 1)"),
                 ("# x\n0F0 0F1 0B0 0B1\n1F0 1F1 1B0", "mine.txt:3: ", "1B1 is missing"),
                 ("0F0\n1F0", "mine.txt:1: it has forwards only"),
                 ("# x\n0F0 0F1 0B0 0B1\n1F0 0F2 1B0", "mine.txt:", "'complete'"),
                 ("0F0 1F0 1B0 0B0\n2F0 2B0", "mine.txt:2: device 1 has 1 stage, but device 0 has 2"),
                 ("0F0 0X0", "mine.txt:1:5: ", "0X0"),
                 ("", "mine.txt:1:1: no devices"))
        for text, *parts in long_tests.some(wrong[:3], wrong, "app_schedule and tests/pipeline/schedule have more in CI"):
            with self.subTest(text):
                self.order(text)
                self.assert_refused(config, "pipeline.order: ", *parts)
        self.file.unlink()
        self.assert_refused(config, "mine.txt: cannot be read")
        if not long_tests.RUN:
            return
        self.file.write_bytes(bytes(range(256)) * 40)
        self.assert_refused(config, "mine.txt:1:1")
        self.file.unlink()
        self.file.mkdir()
        self.assert_refused(config, "mine.txt: is a folder")
        self.assert_refused(config, "zero: larger than 64.0 MiB", sets=["pipeline.order=/dev/zero"])

    def test_other_keys_must_agree_with_it(self):
        config = self.by_hand()
        others = (("pipeline.chunks=8", "mine.txt\" has 3 micro-batches, but pipeline.chunks = 8"),
                  ("pipeline.schedule=zb-h1", "the file replaces the schedule"),
                  ("pipeline.stages=3", "has 2 devices, but pipeline.stages = 3"),
                  ("pipeline.virtual=2", "has 1 stage, but pipeline.virtual = 2"),
                  ("pipeline.partition=[1,1,1]", "pipeline.partition has 3 entries"),
                  ("train.micro_batch=4", "train.micro_batch=4 contradicts pipeline.chunks=3"))
        for key, part in long_tests.some(others[:2], others, "one of each kind"):
            self.assert_refused(config, part, sets=[key])
        plan = json.loads(cli.must_run("train", config, "--dry-run", "--json", "--set", "pipeline.chunks=auto").stdout)
        self.assertEqual((plan["stages"], plan["virtual"], plan["chunks"]), (2, 1, 3))
        printed = cli.must_run("train", config, "--dry-run").stdout
        self.assertIn(f"schedule order from {self.file}, chunks 3", printed)
        self.assertIn(f'order = "{self.file}"', cli.must_run("config", config).stdout)

    def test_an_order_by_hand_in_step_eval_profile_and_report(self):
        config = self.by_hand()
        fp64 = ("--set", "train.precision=fp64")
        one, other = self.folder / "one.safetensors", self.folder / "other.safetensors"
        cli.must_run("step", configuration(self.folder, "plain"), *fp64, "--out", one)
        cli.must_run("step", config, *fp64, "--out", other)
        try:
            from safetensors.numpy import load_file
        except ImportError as missing:
            self.skipTest(f"{missing}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")
        expected, found = load_file(one), load_file(other)
        self.assertEqual(set(expected), set(found))
        whole = max(abs(values).max() for name, values in expected.items() if name.startswith("grad/"))
        for name, values in expected.items():
            scale = max(abs(values).max(), 1e-3 * whole)
            self.assertLessEqual(abs(values - found[name]).max(), 1e-10 * scale, name)

        self.must_train(config, self.run_dir, 1)
        at_the_end = cli.events(self.run_dir, "eval")[-1]
        report = cli.must_run("report", self.run_dir).stdout
        self.assertIn(f"schedule order from {self.file}, chunks 3", report)
        self.file.unlink()  # the checkpoint has it
        counts = json.loads(cli.must_run("eval", "--checkpoint", self.run_dir, "--json").stdout)
        self.assertEqual([counts[key] for key in ("top1", "samples")], [at_the_end[key] for key in ("top1", "samples")])
        self.order(BY_HAND)
        for command in ("step", "profile"):
            done = cli.run(command, config, "--out", self.file)
            self.assertEqual((done.returncode, self.file.read_text(encoding="utf-8")), (2, BY_HAND), done.stderr)
        out = self.folder / "profile.json"
        profiled = json.loads(cli.must_run("profile", config, "--out", out, "--json", "--set", "profile.steps=2").stdout)
        self.assertEqual(profiled["micro_batch"], 16 // 3)

    def test_a_stopped_run_goes_on_with_its_order_whatever_became_of_the_file(self):
        # Long enough to be stopped.
        config = configuration(self.folder, pipeline={"order": str(self.file)}, train={"steps": STOPPED_STEPS},
                               checkpoint={"every_steps": 10})
        self.order(BY_HAND)
        cases = ((1, lambda: self.order("0F0 0B0\n1F0 1B0\n"), "the file has another schedule now"), (1, lambda: None, None),
                 (2, self.file.unlink, "cannot be read"))
        cases = long_tests.some(cases[:1], cases, "the file goes, or stays as it is")
        for size in {size for size, _, _ in cases}:
            self.must_train(config, self.folder / f"whole{size}", size)
        for size, become, said in cases:
            self.order(BY_HAND)
            processes = self.start(config, size)
            cli.wait_until(lambda: cli.checkpoints(self.run_dir), processes[0])
            processes[0].send_signal(signal.SIGTERM)
            codes = {done.returncode for done in cli.finish_all(processes)}
            become()
            resumed = cli.finish_all(self.start(config, size, "--resume", "auto"))
            self.assertEqual([done.returncode for done in resumed], [0] * size, [done.stderr for done in resumed])
            self.assert_same_end(self.run_dir, self.folder / f"whole{size}", STOPPED_STEPS)
            if said and codes == {130}:  # on a busy machine the run may have ended before
                self.assertRegex(resumed[0].stderr,
                                 rf"has changed since .*{re.escape(said)}.*the saved schedule is used")
            elif not said:
                self.assertNotIn("has changed since", resumed[0].stderr)
            shutil.rmtree(self.run_dir)

    def start(self, config, size, *arguments):
        words = ("train", config, "--run-dir", self.run_dir, *arguments)
        return cli.start_ranks(size, *words) if size > 1 else [cli.start(*words)]

    def test_another_file_is_another_plan(self):
        self.must_train(self.by_hand(), self.run_dir, 1)
        other = self.folder / "other.txt"
        other.write_text("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n", encoding="utf-8")
        cli.must_run("train", configuration(self.folder), "--run-dir", self.run_dir, "--resume", "auto", "--set",
                     f"pipeline.order={other}", "--set", f"train.steps={STEPS + 2}")
        plans = cli.events(self.run_dir, "plan")
        self.assertEqual([plan["chunks"] for plan in plans], [3, 2])
        self.assertEqual(plans[-1]["schedule"], f"order from {other}")
        self.assertEqual(len(losses(self.run_dir)), STEPS + 2)

    def test_the_example_of_the_documentation(self):
        page = (pathlib.Path(__file__).parents[2] / "docs" / "reference" / "schedules.md").read_text(encoding="utf-8")
        example = re.search(r"## Training a schedule file.*?```\n(.*?)```", page, re.DOTALL).group(1)
        commands = [line.partition("#")[0].split() for line in example.splitlines()]
        config = configuration(self.folder)
        for words in commands:
            self.assertEqual(words[0], "sluice")
            words = [str(config) if word == "run.toml" else word for word in words[1:]]
            cli.must_run(*words, cwd=self.folder)
        self.assertEqual(len(list((self.folder / "runs").iterdir())), 1)


if __name__ == "__main__":
    unittest.main()
