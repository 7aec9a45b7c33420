#!/usr/bin/env python3
"""Exports a run directory to an experiment tracker, with the tracker's own Python package.

    export_run.py RUN --to wandb  [--out FOLDER] [--project NAME] [--every N]     offline files, for `wandb sync`
    export_run.py RUN --to mlflow [--out FOLDER] [--project NAME] [--every N]     a local MLflow store

Reads RUN/config.toml (parameters) and RUN/metrics.jsonl (points): training steps under train/, evaluations under val/,
epochs under epoch/, the summary's numbers under summary/. You can export a run again after it continued; the new export
replaces the old one. Nothing is sent over a network.

Exit codes: 2 for bad arguments or a missing package, 3 for a directory without a run, 8 for an output that cannot be written.
"""

import argparse
import datetime
import hashlib
import json
import math
import os
import pathlib
import shutil
import sys
import tomllib

PREFIXES = {"step": "train", "eval": "val", "epoch": "epoch"}
# Fields of a record that are not measurements.
PLACES = {"event", "time_s", "step", "epoch", "batch", "batches"}
# After these events a run continues, whatever ended it before.
GOES_ON = {"plan", "resume", "step"}
# MLflow's words for the end of a run; any other run is RUNNING.
MLFLOW_STATUS = {"done": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


class Failure(Exception):
    """One sentence for the user, and an exit code."""

    def __init__(self, code, what):
        super().__init__(what)
        self.code = code


def read_records(file):
    """The complete lines of metrics.jsonl."""
    records = []
    for number, line in enumerate(file.read_text(encoding="utf-8").split("\n")[:-1], 1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise Failure(3, f"{file}: line {number} is not JSON ({error.msg}); export an undamaged run") from error
        if not isinstance(record, dict) or not isinstance(record.get("event"), str):
            raise Failure(3, f"{file}: line {number} is not a record of a run; export an undamaged run")
        records.append(record)
    return records


def flat(value, name=""):
    """Nested tables and lists as {"a.b": 1, "a.0": 2}."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        return {name: value}
    result = {}
    for key, inner in items:
        result.update(flat(inner, f"{name}.{key}" if name else str(key)))
    return result


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def numbers_of(record, prefix):
    kept = {key: value for key, value in record.items() if key not in PLACES}
    return {f"{prefix}/{key}": value for key, value in flat(kept).items() if is_number(value)}


def points_of(records, every=1):
    """[(step, seconds since the run began, {name: number})] in the order of the steps; of training steps each `every`th
    and the last. Where a step was recorded more than once (a resume), the last record counts."""
    latest, last_step = {}, 0
    for record in records:
        if record["event"] in PREFIXES and isinstance(record.get("step"), int):
            latest[record["event"], record["step"]] = record
            last_step = max(last_step, record["step"])
    by_step = {}
    for (event, step), record in latest.items():
        if event == "step" and step % every and step != last_step:
            continue
        seconds, numbers = by_step.get(step, (0.0, {}))
        numbers.update(numbers_of(record, PREFIXES[event]))
        by_step[step] = (max(seconds, float(record.get("time_s") or 0)), numbers)
    return [(step, *by_step[step]) for step in sorted(by_step)]


def end_of(records):
    """(how the run ended, its summary), by the rules of RunLog::outcome (src/report/run_log.cpp). "running": the run has not
    ended, or it trains again after a summary or a fault."""
    summary, ends_in_fault = {}, False
    for record in records:
        if record["event"] in GOES_ON:
            summary, ends_in_fault = {}, False
        elif record["event"] == "summary":
            summary = record
        elif record["event"] == "fault":
            ends_in_fault = True
    outcome = summary.get("outcome")
    if not isinstance(outcome, str):
        outcome = "failed" if ends_in_fault else "running"
    return outcome, summary


class Run:
    def __init__(self, folder, every):
        self.folder = folder.resolve()
        config, metrics = self.folder / "config.toml", self.folder / "metrics.jsonl"
        for file in (config, metrics):
            if not file.is_file():
                raise Failure(3, f"{folder} is not a run directory: {file.name} is missing; give the folder of --run-dir")
        try:
            self.parameters = flat(tomllib.loads(config.read_text(encoding="utf-8")))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise Failure(3, f"{config}: {error}; export an undamaged run") from error
        records = read_records(metrics)
        self.points = points_of(records, every)
        self.outcome, summary = end_of(records)
        self.summary = numbers_of(summary, "summary")
        if not self.points:
            raise Failure(3, f"{metrics} has no steps yet; export the run after its first step")
        self.name = self.folder.name
        self.id = hashlib.sha256(str(self.folder).encode()).hexdigest()[:16]
        self.began = metrics.stat().st_mtime - max(seconds for _, seconds, _ in self.points)


def to_wandb(run, out, project):
    try:
        import wandb
    except ImportError as missing:
        raise Failure(2, f"{missing}; run: pip install wandb") from missing
    for old in (out / "wandb").glob(f"offline-run-*-{run.id}"):
        shutil.rmtree(old)
    os.environ.setdefault("WANDB_SILENT", "true")
    made = wandb.init(mode="offline", project=project, id=run.id, name=run.name, dir=str(out), config=run.parameters,
                      tags=["sluice", run.outcome], settings=wandb.Settings(x_disable_stats=True, console="off"))
    for step, seconds, numbers in run.points:
        made.log({**numbers, "time_s": seconds}, step=step)
    made.summary.update(run.summary)
    made.finish(exit_code=1 if run.outcome == "failed" else 0)  # by it W&B calls a run failed
    wandb.teardown()
    return next((out / "wandb").glob(f"offline-run-*-{run.id}"))


def to_mlflow(run, out, project):
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    try:
        import mlflow
        from mlflow.entities import Metric, Param, RunTag
    except ImportError as missing:
        raise Failure(2, f"{missing}; run: pip install mlflow-skinny") from missing
    client = mlflow.MlflowClient(tracking_uri=(out / "mlruns").as_uri())
    known = client.get_experiment_by_name(project)
    experiment = known.experiment_id if known else client.create_experiment(project)
    for old in client.search_runs([experiment], f"tags.`sluice.run` = '{run.id}'"):
        client.delete_run(old.info.run_id)
    began_ms = int(run.began * 1000)
    made = client.create_run(experiment, start_time=began_ms, run_name=run.name,
                             tags={"sluice.run": run.id, "sluice.outcome": run.outcome}).info.run_id
    parameters = [Param(key, str(value)[:6000]) for key, value in run.parameters.items()]
    metrics = [Metric(key, float(value), began_ms + int(seconds * 1000), step)
               for step, seconds, numbers in run.points for key, value in numbers.items()]
    last_step, last_seconds, _ = run.points[-1]
    metrics += [Metric(key, float(value), began_ms + int(last_seconds * 1000), last_step)
                for key, value in run.summary.items()]
    for begin in range(0, len(parameters), 100):  # as many as the interface takes at once
        client.log_batch(made, params=parameters[begin:begin + 100])
    for begin in range(0, len(metrics), 1000):
        client.log_batch(made, metrics=metrics[begin:begin + 1000])
    client.log_batch(made, tags=[RunTag("exported", datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"))])
    if run.outcome in MLFLOW_STATUS:
        client.set_terminated(made, MLFLOW_STATUS[run.outcome], began_ms + int(last_seconds * 1000))
    return out / "mlruns" / experiment / made


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path, metavar="RUN")
    parser.add_argument("--to", required=True, choices=("wandb", "mlflow"))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."), help="folder of the files (default: this one)")
    parser.add_argument("--project", default="sluice", help="project or experiment (default: sluice)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th training step only (default: all)")
    asked = parser.parse_args(words)
    if asked.every < 1:
        parser.error("--every is to be 1 or more")
    try:
        run = Run(asked.run, asked.every)
        out = asked.out.resolve()
        out.mkdir(parents=True, exist_ok=True)
        made = {"wandb": to_wandb, "mlflow": to_mlflow}[asked.to](run, out, asked.project)
    except Failure as failure:
        print(f"export_run.py: {failure}", file=sys.stderr)
        return failure.code
    except OSError as error:
        print(f"export_run.py: {error}; choose another --out or make room", file=sys.stderr)
        return 8
    hint = "; read it with MLFLOW_ALLOW_FILE_STORE=true, which newer versions of MLflow ask for" if asked.to == "mlflow" else ""
    print(f"{len(run.points)} steps of {run.name} ({run.outcome}) in {made}{hint}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
