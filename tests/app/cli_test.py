#!/usr/bin/env python3
"""The command line from outside: exit codes, messages, what goes to which stream, what a run directory holds.

    cli_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import json
import os
import pathlib
import signal
import struct
import subprocess
import tempfile
import tomllib
import unittest

import long_tests
import sluice_cli as cli

BREAKDOWN = ("load_ms", "forward_ms", "backward_ms", "transfer_ms", "allreduce_exposed_ms", "optimizer_ms", "idle_ms")


class CliTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.run_dir = self.folder / "run"
        self.config = self.configuration()

    def configuration(self, name="small.toml", **changes):
        tables = {
            "device": {"list": "cpu"},
            "model": {"name": "mlp", "image_size": 8},
            "data": {"name": "shapes", "samples": 65},
            "train": {"steps": 6, "global_batch": 16, "lr": 0.05},
            "pipeline": {}, "replicas": {}, "checkpoint": {}, "log": {"every": 1}}
        for table, values in changes.items():
            tables[table] = {**tables[table], **values}
        return cli.write_config(self.folder / name, **tables)

    def train(self, *arguments):
        return cli.run("train", self.config, "--run-dir", self.run_dir, *arguments)

    def assert_refused(self, done, code, *parts):
        """Exit code, nothing on standard output, and one line of error that has all parts."""
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "")
        for part in parts:
            self.assertIn(str(part), cli.error_of(done))


class UsageTest(CliTest):
    def test_bad_usage_is_2_and_points_to_help(self):
        bad = ((), ("train",), ("train", self.config, "--nonsense"), ("nonsense",), ("eval", self.config), ("step", self.config),
               ("train", self.config, "--set"))
        for words in long_tests.some(bad[:3], bad, "one of each kind"):
            self.assert_refused(cli.run(*words), 2, "--help")

    def test_an_unknown_command_is_named_with_the_nearest(self):
        self.assert_refused(cli.run("trian", self.config), 2, "'trian'", "did you mean 'train'?")

    def test_standard_output_that_takes_nothing_is_8(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        commands = (("config",), ("version", "--json"), ("--help",), ("--version",), ("models",))
        for command in long_tests.some(commands[:2], commands, "they write in one way"):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([cli.BINARY, *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(done.returncode, 8, command)
            self.assertIn("standard output", cli.error_of(done))

    def test_json_is_all_that_is_on_standard_output(self):
        commands = ("devices", "version", "models", "datasets")
        for command in long_tests.some(commands[:1], commands, "they write in one way"):
            self.assertIsInstance(json.loads(cli.must_run(command, "--json").stdout), dict)
        out = self.folder / "step.safetensors"
        step = json.loads(cli.must_run("step", self.config, "--out", out, "--json").stdout)
        self.assertGreater(step["loss"], 0)
        self.assertTrue(out.exists())

    def test_config_prints_what_loads_again_to_the_same(self):
        text = cli.must_run("config", self.config, "--set", "train.lr=0.125", "--set", "pipeline.chunks=\"auto\"").stdout
        again = self.folder / "again.toml"
        again.write_text(text, encoding="utf-8")
        self.assertEqual(cli.must_run("config", again).stdout, text)
        self.assertIn("lr = 0.125", text)


class ConfigurationTest(CliTest):
    def test_an_unknown_key_is_named_with_its_line_and_the_nearest_key(self):
        config = self.folder / "typo.toml"
        config.write_text("[train]\nsteps = 1\n\nlearning_rat = 1\nepoch = 3\n", encoding="utf-8")
        self.assert_refused(cli.run("train", config), 2, f"{config}:4:", "train.learning_rat")
        self.assert_refused(cli.run("train", self.config, "--set", "train.epoch=3"), 2, "train.epoch", "train.epochs")

    def test_a_value_out_of_range_is_named_with_its_range(self):
        self.assert_refused(self.train("--set", "train.lr=-1"), 2, "train.lr", "-1", "> 0")
        bad = self.configuration("bad.toml", data={"flip": "yes"})
        self.assert_refused(cli.run("train", bad), 2, f"{bad}:", "data.flip")

    def test_names_that_do_not_exist_are_named_with_those_that_do(self):
        self.assert_refused(self.train("--set", 'model.name="resnet9"'), 2, "resnet9", "resnet8")
        self.assert_refused(self.train("--set", 'pipeline.schedule="1f2b"'), 2, "1f2b", "gpipe")
        self.assert_refused(self.train("--set", 'data.name="shape"'), 2, "shape", "shapes")

    def test_a_missing_configuration_is_named(self):
        self.assert_refused(cli.run("train", self.folder / "none.toml"), 2, self.folder / "none.toml", "no such file")

    def test_more_stages_than_layers_says_how_many_there_are(self):
        self.assert_refused(self.train("--set", "pipeline.stages=4"), 2, "pipeline.stages", "3")

    def test_cpu_devices_record_no_graphs(self):
        words = ("--set", "device.cuda_graphs=true")
        self.assert_refused(self.train(*words), 2, "device.cuda_graphs = true, but cpu:0 is not a GPU", "device.cuda_graphs = false")
        self.assertFalse(self.run_dir.exists())
        if long_tests.RUN:
            self.assert_refused(self.train(*words, "--dry-run"), 2, "cpu:0 is not a GPU")
        batch_norm = ("--set", 'pipeline.batch_norm="deferred"')
        self.assert_refused(self.train(*words, *batch_norm), 2, "pipeline.batch_norm", "device.cuda_graphs=false")
        out = self.folder / "step.safetensors"
        self.assertEqual(cli.run("step", self.config, "--out", out, *words).returncode, 0)  # no step is like it

    def test_dry_run_prints_the_plan_and_writes_nothing(self):
        words = ("--dry-run", "--set", "pipeline.stages=2", "--set", "replicas.local=2", "--set", "pipeline.chunks=3")
        text = self.train(*words).stdout
        for part in ("2 stages x 2 local replicas", "chunks 3", "global batch 16", "parameters", "bytes", "fc1"):
            self.assertIn(part, text)
        plan = json.loads(self.train(*words, "--json").stdout)
        self.assertEqual([plan[key] for key in ("stages", "replicas", "chunks", "global_batch")], [2, 2, 3, 16])
        self.assertEqual(sum(stage["parameters"] for stage in plan["stage_list"]), plan["parameters"])
        self.assertEqual(sum(len(stage["layers"]) for stage in plan["stage_list"]), sum(plan["partition"]))
        self.assertTrue(all(stage["bytes"] >= 4 * stage["parameters"] for stage in plan["stage_list"]))
        self.assertFalse(self.run_dir.exists())

    def test_dry_run_checks_what_the_run_would_start_from(self):
        self.assertEqual(self.train("--set", "train.steps=2").returncode, 0)
        before = sorted(path.name for path in self.run_dir.iterdir())
        plan = json.loads(self.train("--resume", "auto", "--dry-run", "--json").stdout)
        self.assertEqual((plan["resume"]["step"], plan["resume"]["total_steps"]), (2, 6))
        self.assert_refused(self.train("--resume", "auto", "--dry-run", "--set", "train.steps=1"), 2, "step 2", "step 1")
        self.assert_refused(self.train("--resume", "auto", "--set", "train.steps=1"), 2, "step-2", "ends at step 1")
        garbage = self.folder / "garbage.safetensors"
        garbage.write_bytes(b"x" * 100)
        words = ("--dry-run", "--set", f'model.weights="{garbage}"')
        self.assert_refused(cli.run("train", self.config, "--run-dir", self.folder / "new", *words), 7, garbage)
        self.assertEqual(sorted(path.name for path in self.run_dir.iterdir()), before)

    def test_a_place_that_is_no_place_for_a_run_is_refused(self):
        (self.folder / "nowhere").symlink_to(self.folder / "gone")
        places = ((self.folder / "nowhere", "nowhere"), ("", "--run-dir"), (self.config, "small.toml"))
        for place, said in long_tests.some(places[:1], places, "one of each kind"):
            self.assert_refused(cli.run("train", self.config, "--run-dir", place), 2, said)


class DataTest(CliTest):
    def idx(self, name, *sizes, cut=0):
        count = 1
        for size in sizes:
            count *= size
        data = bytes((0, 0, 8, len(sizes))) + struct.pack(f">{len(sizes)}I", *sizes) + bytes(count)
        (self.folder / name).write_bytes(data[:len(data) - cut])

    def mnist(self, cut):
        for split, count in (("train", 40), ("t10k", 10)):
            self.idx(f"{split}-images-idx3-ubyte", count, 28, 28, cut=cut if split == "train" else 0)
            self.idx(f"{split}-labels-idx1-ubyte", count)
        return self.configuration("mnist.toml", model={"image_size": 0},
                                  data={"name": "mnist", "path": str(self.folder)})

    def test_missing_files_are_3_and_named(self):
        config = self.configuration("mnist.toml", data={"name": "mnist", "path": str(self.folder)})
        self.assert_refused(cli.run("train", config), 3, self.folder, "train-images-idx3-ubyte", "data.path")

    def test_a_truncated_file_is_3_and_named_with_the_place(self):
        done = cli.run("train", self.mnist(cut=100), "--run-dir", self.run_dir)
        pixels = 40 * 28 * 28
        self.assert_refused(done, 3, f"{self.folder}/train-images-idx3-ubyte: byte 16:", pixels, pixels - 100)
        self.assertFalse(self.run_dir.exists())

    def test_whole_files_train(self):
        done = cli.run("train", self.mnist(cut=0), "--run-dir", self.run_dir)
        self.assertEqual(done.returncode, 0, done.stderr)


class RunTest(CliTest):
    def test_divergence_is_6_and_names_the_step_and_a_checkpoint_that_is_good(self):
        good = self.train("--set", "train.steps=2", "--set", "checkpoint.every_steps=1")
        self.assertEqual(good.returncode, 0, good.stderr)
        done = self.train("--resume", "auto", "--set", "train.lr=1e30", "--set", "checkpoint.every_steps=1")
        self.assertEqual(done.returncode, 6, done.stderr)
        error = cli.error_of(done)
        self.assertRegex(error, r"step [34]: the loss is (NaN|-?Infinity);")
        # The update of the last step that was done has ruined the weights: that checkpoint must not be called good.
        # It is set aside, and the run goes on from the one before.
        good = max(cli.checkpoints(self.run_dir))
        self.assertIn(f"step-{good + 1} holds the weights that gave this loss", error)
        self.assertIn(f"the last good checkpoint is {cli.checkpoints(self.run_dir)[good]}", error)
        self.assertNotIn(f"good checkpoint is {self.run_dir / 'checkpoints' / f'step-{good + 1}'}", error)
        self.assertEqual(len(cli.events(self.run_dir, "fault")), 1)
        again = self.train("--resume", "auto", "--set", "checkpoint.every_steps=1")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn(f"at step {good} of ", again.stderr)

    def test_weights_of_another_model_are_7_and_named(self):
        self.assertEqual(self.train("--set", "train.steps=1").returncode, 0)
        weights = cli.checkpoints(self.run_dir)[1] / "model.safetensors"
        other = self.configuration("other.toml", model={"name": "toy_cnn", "weights": str(weights)})
        self.assert_refused(cli.run("train", other, "--run-dir", self.folder / "other"), 7, weights, "conv1")
        garbage = self.folder / "garbage.safetensors"
        garbage.write_bytes(b"\xff" * 100)
        self.assert_refused(cli.run("eval", self.config, "--weights", garbage), 7, garbage)

    def test_json_prints_the_summary_and_nothing_else_on_standard_output(self):
        summary = json.loads(cli.must_run("train", self.config, "--run-dir", self.run_dir, "--json").stdout)
        self.assertEqual(summary.pop("run_dir"), str(self.run_dir))
        line = cli.events(self.run_dir, "summary")[-1]
        self.assertEqual(summary, {key: line[key] for key in line if key not in ("event", "time_s")})
        self.assertEqual((summary["outcome"], summary["steps"]), ("done", 6))

    def test_weights_that_are_not_numbers_are_7_and_counted(self):
        self.assertEqual(self.train("--set", "train.steps=1").returncode, 0)
        weights = cli.checkpoints(self.run_dir)[1] / "model.safetensors"
        data = bytearray(weights.read_bytes())
        data[-400:] = struct.pack("<f", float("nan")) * 100
        (self.folder / "nan.safetensors").write_bytes(data)
        said = (self.folder / "nan.safetensors", "fc3.weight has 100 NaN")
        self.assert_refused(cli.run("eval", self.config, "--weights", said[0]), 7, *said)
        self.assert_refused(cli.run("step", self.config, "--weights", said[0], "--out", self.folder / "out"), 7, *said)
        self.assert_refused(cli.run("train", self.config, "--run-dir", self.folder / "other", "--set",
                                    f'model.weights="{said[0]}"'), 7, *said)

    def test_a_batch_that_is_not_finite_is_3_and_named(self):
        batch, out = self.folder / "batch.safetensors", self.folder / "out.safetensors"
        header = json.dumps({"inputs": {"dtype": "F32", "shape": [2, 3, 8, 8], "data_offsets": [0, 1536]},
                             "targets": {"dtype": "I64", "shape": [2], "data_offsets": [1536, 1552]}}).encode()
        header += b" " * (-len(header) % 8)
        pixels = [0.5] * 383 + [float("nan")]
        batch.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<384f2q", *pixels, 0, 1))
        done = cli.run("step", self.config, "--batch", batch, "--out", out)
        self.assert_refused(done, 3, batch, "sample 1 has 1 NaN", out)
        self.assertTrue(out.exists())

    def test_step_never_writes_over_what_it_reads(self):
        batch = self.folder / "batch.safetensors"
        cli.must_run("step", self.config, "--out", batch)
        before = batch.read_bytes()
        self.assert_refused(cli.run("step", self.config, "--batch", batch, "--out", batch), 2, "--out", batch)
        self.assertEqual(batch.read_bytes(), before)
        self.assertEqual(self.train("--set", "train.steps=1").returncode, 0)
        files = [path for path in cli.checkpoints(self.run_dir)[1].iterdir()] + [self.config]
        contents = [path.read_bytes() for path in files]
        step, evaluation = ("step", "--out"), ("eval", "--checkpoint", self.run_dir, "--logits")
        both = [(path, words) for path in files for words in (step, evaluation)]
        in_turns = [both[2 * i + i % 2] for i in range(0, len(files), 2)]
        for path, (command, *words) in long_tests.some(in_turns, both, "half of the files, each by one of the two commands"):
            self.assert_refused(cli.run(command, self.config, *words, path), 2, words[-1], path)
        nowhere = self.folder / "nowhere" / "logits.safetensors"
        done = cli.run("eval", self.config, "--weights", "/nowhere", "--logits", nowhere)  # said before anything is read
        self.assert_refused(done, 8, nowhere, "No such file or directory")
        self.assertEqual([path.read_bytes() for path in files], contents)

    def test_options_left_empty_by_a_script_are_refused(self):
        empty = (("step", self.config, "--out", ""), ("eval", self.config, "--checkpoint", ""),
                 ("step", self.config, "--out", "x", "--batch", ""), ("step", self.config, "--out", "x", "--weights", ""),
                 ("eval", self.config, "--weights", ""))
        for words in long_tests.some(empty[:2], empty, "one of each command"):
            self.assert_refused(cli.run(*words), 2, "must not be empty")

    @long_tests.only("two more starts")
    def test_a_start_that_failed_can_be_tried_again(self):
        self.assertEqual(self.train("--set", 'model.weights="missing"').returncode, 7)
        self.assertEqual(self.train("--set", "train.steps=1").returncode, 0)

    def test_a_run_directory_belongs_to_one_process(self):
        self.config = self.configuration("long.toml", train={"steps": 1000000})
        environment = {key: value for key, value in cli.environment_without_launchers().items() if key != "GOMP_SPINCOUNT"}
        first = cli.start("train", self.config, "--run-dir", self.run_dir, env=environment)
        cli.wait_until(lambda: (self.run_dir / "metrics.jsonl").exists(), first)
        try:
            process = pathlib.Path(f"/proc/{first.pid}")
            if process.exists():  # what `ps` and `pgrep` show, also after it has started itself again
                variables = (process / "environ").read_bytes().split(b"\0")
                self.assertIn(b"GOMP_SPINCOUNT=3000", variables)
                self.assertEqual((process / "comm").read_text(), "sluice\n")
                self.assertEqual((process / "cmdline").read_bytes().split(b"\0")[:2], [cli.BINARY.encode(), b"train"])
            for resume in ((), ("--resume", "auto")):
                self.assert_refused(self.train(*resume), 2, self.run_dir)
        finally:
            cli.stop(first, signal.SIGINT)
        self.assert_refused(self.train(), 2, self.run_dir)  # it holds a run now: only --resume may go on

    def test_a_full_disk_is_8(self):
        self.run_dir.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", self.run_dir]
        if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
            self.skipTest("cannot mount a small file system here")
        try:
            done = self.train("--set", "log.tensorboard=false")
            self.assertEqual(done.returncode, 8, done.stderr)
            self.assertIn(str(self.run_dir), cli.error_of(done))
            self.assertEqual(list(cli.checkpoints(self.run_dir)), [], "half a checkpoint was left")
        finally:
            subprocess.run(["umount", self.run_dir], check=True)

    def test_a_place_that_cannot_be_written_is_8(self):
        if not os.path.isdir("/proc/self"):
            self.skipTest("no /proc, where nobody may write")
        done = cli.run("train", self.config, "--run-dir", "/proc/self/run")
        self.assert_refused(done, 8, "/proc/self/run")

    def test_evaluation_counts_each_sample_once_whatever_the_replicas(self):
        self.assertEqual(self.train().returncode, 0)
        results = []
        ways = ((4, 1, 4), (2, 3, 7), (1, 1, 256), (2, 1, 5))
        for replicas, stages, batch in long_tests.some(ways[:2], ways, "the most replicas, the most stages"):
            out = cli.must_run(
                "eval", self.config, "--checkpoint", self.run_dir, "--json", "--set", f"replicas.local={replicas}",
                "--set", f"pipeline.stages={stages}", "--set", f"train.eval_batch={batch}").stdout
            results.append(json.loads(out))
        of_run = cli.events(self.run_dir, "eval")[-1]
        for result in results:
            self.assertEqual((result["checkpoint"], result["step"]), (str(cli.checkpoints(self.run_dir)[6]), 6))
            self.assertEqual(result["samples"], 13)
            self.assertEqual((result["top1"], result["top5"]), (of_run["top1"], of_run["top5"]))
            self.assertAlmostEqual(result["loss"], of_run["loss"], delta=1e-5)

    def test_evaluation_needs_no_configuration_beside_a_checkpoint(self):
        self.assertEqual(self.train("--set", "train.steps=2").returncode, 0)
        of_run = cli.events(self.run_dir, "eval")[-1]
        text = cli.must_run("eval", "--checkpoint", self.run_dir).stdout
        self.assertEqual(text, f"checkpoint {cli.checkpoints(self.run_dir)[2]}: top-1 {of_run['top1']:.2f} %  "
                               f"top-5 {of_run['top5']:.2f} %  loss {of_run['loss']:.4f}  on 13 targets\n")

    def test_the_breakdown_of_a_step_adds_up(self):
        done = self.train("--set", "pipeline.stages=2", "--set", "replicas.local=2", "--set", "pipeline.chunks=2",
                          "--set", 'profile.level="events"')
        self.assertEqual(done.returncode, 0, done.stderr)
        steps = cli.events(self.run_dir, "step")
        self.assertEqual(len(steps), 6)
        for line in steps:
            total = sum(line[field] for field in BREAKDOWN)
            self.assertAlmostEqual(total, line["step_ms"], delta=1e-3 * line["step_ms"])
            self.assertTrue(all(line[field] >= 0 for field in BREAKDOWN), line)

    def test_tensorboard_reads_the_events(self):
        try:
            from tensorboard.backend.event_processing import event_accumulator
        except ImportError:
            self.skipTest("the tensorboard package is missing")
        self.assertEqual(self.train().returncode, 0)
        found = event_accumulator.EventAccumulator(str(self.run_dir / "tensorboard"))
        found.Reload()
        losses = {event.step: event.value for event in found.Scalars("Loss/train")}
        expected = {line["step"]: line["loss"] for line in cli.events(self.run_dir, "step")}
        self.assertEqual(losses.keys(), expected.keys())
        for step, loss in expected.items():
            self.assertAlmostEqual(losses[step], loss, places=5)
        self.assertTrue({"Loss/val", "acc1/val", "acc5/val", "lr"} <= set(found.Tags()["scalars"]))
        busy = {event.step: event.value for event in found.Scalars("device_busy")}
        for line in cli.events(self.run_dir, "step"):
            self.assertAlmostEqual(busy[line["step"]], sum(line["device_busy"]) / len(line["device_busy"]), places=5)
        epochs = cli.events(self.run_dir, "epoch")
        self.assertTrue(epochs)
        for tag, key in (("Loss/train_epoch", "loss"), ("acc1/train_epoch", "top1"), ("epoch", "epoch")):
            self.assertEqual([(point.step, round(point.value, 4)) for point in found.Scalars(tag)],
                             [(line["step"], round(line[key], 4)) for line in epochs])
        for place in ("process", "cpu:0"):
            self.assertAlmostEqual(found.Scalars(f"peak_memory_mib/{place}")[0].value,
                                   epochs[0]["peak_memory_bytes"][place] / 2**20, delta=0.01)

    def test_tensorboard_reads_the_hyper_parameters(self):
        try:
            from tensorboard.backend.event_processing import event_accumulator
            from tensorboard.plugins.hparams import metadata
        except ImportError:
            self.skipTest("the tensorboard package is missing")
        self.assertEqual(self.train("--set", "train.nesterov=true", "--set", "train.optimizer=momentum").returncode, 0)
        found = event_accumulator.EventAccumulator(str(self.run_dir / "tensorboard"))
        found.Reload()
        [content] = found.PluginTagToContent(metadata.PLUGIN_NAME).values()
        started = metadata.parse_session_start_info_plugin_data(content)
        resolved = tomllib.loads((self.run_dir / "config.toml").read_text())
        values = {}
        for key, value in started.hparams.items():
            values[key] = getattr(value, value.WhichOneof("kind"))
        for table in ("model", "train", "pipeline"):
            for name, value in resolved[table].items():
                if isinstance(value, (bool, int, float, str)):
                    self.assertEqual(values[f"{table}.{name}"], value, name)
        self.assertIs(values["train.nesterov"], True)
        self.assertNotIn("log.every", values)


if __name__ == "__main__":
    unittest.main(verbosity=2)
