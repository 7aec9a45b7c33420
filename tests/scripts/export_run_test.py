#!/usr/bin/env python3
"""scripts/export_run.py: what it makes of a run's records, read back by the trackers' own packages where they are installed;
and what it says of what is no run.

    export_run_test.py [unittest options]
"""

import contextlib
import importlib.util
import io
import json
import pathlib
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "export_run.py"
spec = importlib.util.spec_from_file_location("export_run", SCRIPT)
export_run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(export_run)

CONFIG = '[train]\nlr = 0.1\nlr_decay_steps = [10, 20]\n[model]\nname = "mlp"\n'


def step(number, loss, **more):
    return {"event": "step", "time_s": number / 2, "step": number, "epoch": 0, "batch": number - 1, "batches": 4,
            "loss": loss, "mfu": None, "device_busy": [0.9, 0.8], **more}


RECORDS = [
    {"event": "plan", "time_s": 0, "model": "mlp"},
    step(1, 2.0), step(2, 1.5), step(3, 1.25, gradient_norm=float("nan")),
    {"event": "resume", "time_s": 1.5, "step": 1},
    step(2, 1.75), step(3, 1.5), step(4, 1.0),
    {"event": "epoch", "time_s": 2, "epoch": 0, "step": 4, "loss": 1.5, "top1": 40.0},
    {"event": "eval", "time_s": 2.5, "epoch": 0, "step": 4, "loss": 0.75, "top1": 60.0},
    {"event": "summary", "time_s": 3, "outcome": "done", "steps": 4, "samples_per_s": 100.0},
]


def records_in(content):
    """Of a .wandb file of one block (LevelDB's log format): behind 7 bytes of head, check sum, length, kind, data."""
    place = 7
    while place + 7 <= len(content):
        length, kind = int.from_bytes(content[place + 4:place + 6], "little"), content[place + 6]
        assert kind == 1, "a record that is not whole: the file has more than one block"
        yield content[place + 7:place + 7 + length]
        place += 7 + length


class ExportRun(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.run_dir = self.folder / "run"
        self.run_dir.mkdir()
        self.write(RECORDS)

    def write(self, records, end=""):
        (self.run_dir / "config.toml").write_text(CONFIG)
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (self.run_dir / "metrics.jsonl").write_text(lines + end)

    def export(self, *words):
        """(exit code, what was said)"""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                code = export_run.main([str(self.run_dir), *words])
            except SystemExit as end:
                code = end.code
        return code, said.getvalue()

    def test_points_are_the_last_records_of_each_step(self):
        points = export_run.points_of(RECORDS)
        self.assertEqual([place for place, _, _ in points], [1, 2, 3, 4])
        self.assertEqual([numbers["train/loss"] for _, _, numbers in points], [2.0, 1.75, 1.5, 1.0])
        self.assertEqual(points[-1][2], {"train/loss": 1.0, "train/device_busy.0": 0.9, "train/device_busy.1": 0.8,
                                         "epoch/loss": 1.5, "epoch/top1": 40.0, "val/loss": 0.75, "val/top1": 60.0})
        self.assertEqual(points[-1][1], 2.5)
        thinned = export_run.points_of(RECORDS, every=3)
        self.assertEqual([place for place, _, _ in thinned], [3, 4])

    def test_parameters_are_flat(self):
        run = export_run.Run(self.run_dir, 1)
        self.assertEqual(run.parameters, {"train.lr": 0.1, "train.lr_decay_steps.0": 10, "train.lr_decay_steps.1": 20,
                                          "model.name": "mlp"})
        self.assertEqual((run.outcome, run.summary), ("done", {"summary/steps": 4, "summary/samples_per_s": 100.0}))

    def test_the_outcome_is_that_of_the_last_end(self):
        fault, done = {"event": "fault", "time_s": 3, "step": 4, "what": "the loss is NaN"}, RECORDS[-1]
        interrupted = {**done, "outcome": "interrupted"}
        resumed = {"event": "resume", "time_s": 3, "step": 4}
        for more, outcome in (
                ([], "running"), ([done], "done"), ([interrupted], "interrupted"), ([fault], "failed"),
                ([interrupted, {"event": "plan", "time_s": 3}], "running"), ([interrupted, resumed], "running"),
                ([interrupted, resumed, step(5, 0.5)], "running"),  # resumed, and goes on
                ([interrupted, resumed, step(5, 0.5), fault], "failed"), ([fault, resumed, step(5, 0.5), done], "done"),
                ([fault, step(5, 0.5)], "running"),  # a change of plan that failed: the old plan goes on
                ([fault, done], "done"), ([{"event": "summary", "time_s": 3}], "running")):
            with self.subTest(more=more):
                self.write([*RECORDS[:-1], *more])
                run = export_run.Run(self.run_dir, 1)
                self.assertEqual(run.outcome, outcome)
                self.assertEqual(bool(run.summary), outcome in ("done", "interrupted"))

    def test_a_line_that_is_being_written_is_left_out(self):
        self.write(RECORDS[:3], end='{"event":"step","st')
        self.assertEqual([place for place, _, _ in export_run.Run(self.run_dir, 1).points], [1, 2])
        self.assertEqual(export_run.Run(self.run_dir, 1).outcome, "running")

    def test_what_is_wrong_is_said(self):
        self.write(RECORDS[:1])
        self.assertEqual(self.export("--to", "mlflow")[0], 3)
        self.assertIn("no steps yet", self.export("--to", "mlflow")[1])
        self.write(RECORDS[:2], end="nonsense\n")
        code, said = self.export("--to", "wandb")
        self.assertEqual(code, 3)
        self.assertIn("line 3 is not JSON", said)
        (self.run_dir / "config.toml").unlink()
        self.assertIn("config.toml is missing", self.export("--to", "wandb")[1])
        self.assertEqual(self.export("--to", "nobody")[0], 2)
        self.assertEqual(self.export("--to", "wandb", "--every", "0")[0], 2)

    def test_a_missing_package_is_named(self):
        for name, package in (("wandb", "wandb"), ("mlflow", "mlflow-skinny")):
            if importlib.util.find_spec(name):
                continue
            code, said = self.export("--to", name, "--out", str(self.folder))
            self.assertEqual(code, 2)
            self.assertIn(f"pip install {package}", said)

    @unittest.skipUnless(importlib.util.find_spec("mlflow"), "mlflow is not installed")
    def test_mlflow_has_each_point_once(self):
        import mlflow
        for records in (RECORDS[:4], RECORDS, RECORDS):  # while it runs, resumed, and once more
            self.write(records)
            code, said = self.export("--to", "mlflow", "--out", str(self.folder), "--project", "p")
            self.assertEqual(code, 0, said)
        client = mlflow.MlflowClient(tracking_uri=(self.folder / "mlruns").as_uri())
        runs = client.search_runs([client.get_experiment_by_name("p").experiment_id])
        self.assertEqual(len(runs), 1)
        self.assertEqual((runs[0].info.status, runs[0].data.params["train.lr"]), ("FINISHED", "0.1"))
        for name, expected in (("train/loss", [(1, 2.0), (2, 1.75), (3, 1.5), (4, 1.0)]), ("val/top1", [(4, 60.0)]),
                               ("epoch/top1", [(4, 40.0)])):
            history = client.get_metric_history(runs[0].info.run_id, name)
            self.assertEqual(sorted((point.step, point.value) for point in history), expected)

    @unittest.skipUnless(importlib.util.find_spec("mlflow"), "mlflow is not installed")
    def test_mlflow_has_the_runs_end(self):
        import mlflow
        ends = {"RUNNING": [], "KILLED": [{**RECORDS[-1], "outcome": "interrupted"}], "FAILED": [{"event": "fault", "time_s": 3, "step": 4}],
                "FINISHED": RECORDS[-1:]}
        for status, more in ends.items():
            self.write([*RECORDS[:-1], *more])
            self.assertEqual(self.export("--to", "mlflow", "--out", str(self.folder), "--project", "p")[0], 0)
            client = mlflow.MlflowClient(tracking_uri=(self.folder / "mlruns").as_uri())
            runs = client.search_runs([client.get_experiment_by_name("p").experiment_id])
            self.assertEqual([run.info.status for run in runs], [status])

    def wandb_records(self):
        """Of the one run that is there."""
        from wandb.proto import wandb_internal_pb2
        file, = self.folder.glob("wandb/offline-run-*/*.wandb")
        return [wandb_internal_pb2.Record.FromString(data) for data in records_in(file.read_bytes())]

    @unittest.skipUnless(importlib.util.find_spec("wandb"), "wandb is not installed")
    def test_wandb_has_each_point_once(self):
        for records in (RECORDS[:4], RECORDS):
            self.write(records)
            code, said = self.export("--to", "wandb", "--out", str(self.folder))
            self.assertEqual(code, 0, said)
        history = []
        for record in self.wandb_records():
            if record.WhichOneof("record_type") == "history":
                items = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
                history.append((record.history.step.num or items.get("_step"), items["train/loss"]))
        self.assertEqual(history, [(1, 2.0), (2, 1.75), (3, 1.5), (4, 1.0)])

    @unittest.skipUnless(importlib.util.find_spec("wandb"), "wandb is not installed")
    def test_wandb_has_a_failure_as_exit_code(self):
        for end, expected in ([RECORDS[-1], 0], [{"event": "fault", "time_s": 3, "step": 4}, 1]):
            self.write([*RECORDS[:-1], end])
            self.assertEqual(self.export("--to", "wandb", "--out", str(self.folder))[0], 0)
            codes = [record.exit.exit_code for record in self.wandb_records() if record.WhichOneof("record_type") == "exit"]
            self.assertEqual(codes, [expected])


if __name__ == "__main__":
    unittest.main(verbosity=2)
