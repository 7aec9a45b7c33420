#!/usr/bin/env python3
"""How well a step is predicted: `sluice simulate --profile` beside `sluice train`, plan by plan, on CPU devices.

    prediction.py [--models M,...] [--plans N] [--rounds R] [--steps S] [--keep FOLDER]

For each model one `sluice profile` of two devices with a thread each; nothing is fitted to the plans that are scored.
Plans are drawn from stages x replicas <= 2, 1 to 16 micro-batches, several schedules; every round runs each of them once,
in turn. A plan's time is the median over its rounds of the median step without loading; its spread is half the range of
the rounds. Prints each plan with the parts of a step, and then, per model and in all: errors, those above max(5 %, twice
the spread), and the pairs of plans whose order is right among those whose times differ by more than their spreads.
SLUICE_BINARY names the binary. A quiet machine: every busy process is an error of the prediction.
"""

import argparse
import itertools
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "support"))
import sluice_cli as cli  # noqa: E402
from experiments import arguments  # noqa: E402  (sluice_cli says where they are)

SEED = 23
MODELS = {
    "resnet18": {"model": {"name": "resnet18"}, "train": {"global_batch": 32}},
    "vgg16": {"model": {"name": "vgg16", "image_size": 32}, "train": {"global_batch": 16}},
    "vit": {"model": {"name": "vit", "size": "tiny", "image_size": 32, "patch_size": 4}, "train": {"global_batch": 32}},
    "gpt2": {"model": {"name": "gpt2", "size": "nano", "vocabulary": 256, "context": 128},
             "data": {"name": "text"}, "train": {"global_batch": 32}},
}
SCHEDULES = ("gpipe", "1f1b", "zb-h1", "interleaved")
PARTS = {"compute": ("forward_ms", "backward_ms"), "all-reduce": ("allreduce_exposed_ms",), "optimizer": ("optimizer_ms",)}


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--plans", type=arguments.positive, default=10, help="of each model")
    parser.add_argument("--rounds", type=arguments.positive, default=3)
    parser.add_argument("--steps", type=arguments.positive, default=8, help="timed steps of a run, after 3 others")
    parser.add_argument("--text", type=pathlib.Path, help="the file that gpt2 reads")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for profiles and measured steps")
    return parser.parse_args()


def plans_of(model, count):
    grid = [(1, 1, chunks, "gpipe") for chunks in (1, 4, 16)] + [(1, 2, chunks, "gpipe") for chunks in (1, 2, 8)]
    grid += [(2, 1, chunks, schedule) for chunks in (1, 2, 4, 8, 16) for schedule in SCHEDULES
             if not (schedule == "interleaved" and chunks % 2) and not (schedule == "zb-h1" and chunks < 2)]
    draw = random.Random(f"{SEED} {model}")
    return sorted(draw.sample(grid, min(count, len(grid))))


def sets_of(plan):
    stages, replicas, chunks, schedule = plan
    return [word for key, value in (("pipeline.stages", stages), ("replicas.local", replicas), ("pipeline.chunks", chunks),
                                    ("pipeline.schedule", schedule)) for word in ("--set", f"{key}={value}")]


def configuration(folder, model, asked):
    tables = json.loads(json.dumps(MODELS[model]))
    tables.setdefault("data", {"name": "shapes"})
    tables["data"] |= {"workers": 1, **({"path": str(asked.text)} if tables["data"]["name"] == "text" else {})}
    tables["train"] |= {"steps": asked.steps + 3, "eval_every_steps": 10**9, "eval_limit": 1, "optimizer": "momentum",
                        "lr": 1e-4}
    tables["device"] = {"list": "cpu", "threads": 1}
    tables["checkpoint"] = {"keep": 1}
    tables["log"] = {"tensorboard": False}
    return cli.write_config(folder / f"{model}.toml", **tables)


def sluice(*words):
    done = subprocess.run([cli.BINARY, "--quiet", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"sluice {' '.join(map(str, words))}\n{done.stderr}")
    return done.stdout


def run_plan(folder, config, plan):
    """Median step without loading, in seconds, and the parts of it that the record has."""
    with tempfile.TemporaryDirectory(dir=folder) as run_dir:
        sluice("train", config, "--run-dir", pathlib.Path(run_dir) / "run", *sets_of(plan))
        lines = (pathlib.Path(run_dir) / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [record for record in map(json.loads, lines) if record["event"] == "step"][3:]
    parts = {part: statistics.median(sum(step[key] for key in keys) for step in steps) / 1e3 for part, keys in PARTS.items()}
    return statistics.median(step["step_ms"] - step["load_ms"] for step in steps) / 1e3, parts


def predict(config, profile, plan):
    return json.loads(sluice("simulate", config, "--profile", profile, "--json", *sets_of(plan)))


def mean(values):
    values = list(values)
    return sum(values) / len(values)


class Row:
    def __init__(self, model, plan):
        self.model, self.plan, self.runs, self.parts, self.predicted = model, plan, [], [], None

    @property
    def measured(self):
        return statistics.median(self.runs)

    @property
    def spread(self):
        return (max(self.runs) - min(self.runs)) / 2 / self.measured

    @property
    def error(self):
        return self.predicted["step_s"] / self.measured - 1

    def is_off(self):
        return abs(self.error) > max(0.05, 2 * self.spread)

    def line(self):
        stages, replicas, chunks, schedule = self.plan
        measured = {part: statistics.median(run[part] for run in self.parts) for part in PARTS}
        devices = self.predicted["devices"]
        predicted = {"compute": mean(device["compute_s"] for device in devices),
                     "all-reduce": self.predicted["allreduce_exposed_s"],
                     "optimizer": mean(device["optimizer_s"] for device in devices)}
        parts = "  ".join(f"{part} {predicted[part] * 1e3:.1f}/{measured[part] * 1e3:.1f}" for part in PARTS)
        return (f"{self.model:9} {stages} x {replicas}  m={chunks:<2} {schedule:11} predicted {self.predicted['step_s'] * 1e3:8.1f} "
                f"measured {self.measured * 1e3:8.1f} ms (spread {self.spread:5.1%}) error {self.error:+6.1%}"
                f"{' OFF' if self.is_off() else ''}   {parts}")


def order(rows):
    """Pairs that are in the right order, and those whose times differ by more than their spreads."""
    right = counted = 0
    for a, b in itertools.combinations(rows, 2):
        if abs(a.measured - b.measured) <= a.spread * a.measured + b.spread * b.measured:
            continue
        counted += 1
        right += (a.measured < b.measured) == (a.predicted["step_s"] < b.predicted["step_s"])
    return right, counted


def summary(name, rows):
    errors = sorted(abs(row.error) for row in rows)
    pairs = [order([row for row in rows if row.model == model]) for model in {row.model for row in rows}]
    right, counted = (sum(column) for column in zip(*pairs))
    print(f"{name}: {len(rows)} plans; error median {statistics.median(errors):.1%}, largest {errors[-1]:.1%}; "
          f"{sum(row.is_off() for row in rows)} above max(5 %, twice the spread); order right in {right} of {counted} pairs")


def main():
    asked = options()
    asked.text = (asked.text or pathlib.Path(__file__).resolve().parent.parent.parent / "shared/data/tinyshakespeare").resolve()
    if asked.text.is_dir():
        asked.text = max(asked.text.iterdir(), key=lambda file: file.stat().st_size)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.keep or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for model in asked.models.split(","):
            config, profile = configuration(folder, model, asked), folder / f"{model}.json"
            sluice("profile", config, "--out", profile, *sets_of((2, 1, 4, "1f1b")))
            own = [Row(model, plan) for plan in plans_of(model, asked.plans)]
            for row in own:
                row.predicted = predict(config, profile, row.plan)
            for _ in range(asked.rounds):
                for row in own:
                    seconds, parts = run_plan(folder, config, row.plan)
                    row.runs.append(seconds)
                    row.parts.append(parts)
            for row in own:
                print(row.line(), flush=True)
            summary(model, own)
            rows += own
        if asked.keep:
            table = [{"model": row.model, "plan": row.plan, "runs_s": row.runs, "predicted_s": row.predicted["step_s"]} for row in rows]
            (folder / "steps.json").write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    summary("all", rows)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    sys.exit(main())
