#!/usr/bin/env python3
"""How well a step is predicted: `sluice simulate --profile` beside `sluice train`, plan by plan, on CPU devices.

    prediction.py [--models M,...] [--plans N] [--rounds R] [--steps S] [--precision fp32|bf16] [--keep FOLDER]

For each model one `sluice profile` of two devices with a thread each, which also runs one plan for some steps. That plan
runs twice more, in the first and the last round: by so much as it takes longer than predicted then, the machine is taken
to have become slower since. It is not scored, and nothing is fitted to those that are.
Plans are drawn from stages x replicas <= 2, 1 to 16 micro-batches, several schedules; every round runs each of them once,
in turn. A plan's time is the median over its rounds of the median step; its spread is half the range of the rounds.
Prints each plan with the parts of a step, the error where what the stages really took is put in the order of the schedule,
and memory; then, per model and in all: errors, those above max(5 %, twice the spread), and the pairs of plans whose order
is right among those whose times differ by more than their spreads.
SLUICE_BINARY names the binary. A quiet machine: every busy process is an error of the prediction.
"""

import argparse
import itertools
import json
import pathlib
import random
import statistics
import sys
import tempfile

from plan_runs import (MODELS, PARTS, add_arguments, add_model_arguments, configuration, partition_of, run_plan, sets_of, sluice, text_file,
                       two_stage_plans)
from experiments import arguments  # plan_runs says where they are

SEED = 23
CALIBRATION = (2, 1, 4, "1f1b")  # the plan that `sluice profile` runs for some steps


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--plans", type=arguments.positive, default=10, help="of each model")
    parser.add_argument("--rounds", type=arguments.positive, default=3)
    add_arguments(parser)
    add_model_arguments(parser)
    parser.add_argument("--keep", type=pathlib.Path, help="folder for profiles and measured steps")
    return parser.parse_args()


def plans_of(model, count):
    grid = [(1, 1, chunks, "gpipe") for chunks in (1, 4, 16)] + [(1, 2, chunks, "gpipe") for chunks in (1, 2, 8)]
    grid += two_stage_plans((1, 2, 4, 8, 16))
    grid.remove(CALIBRATION)
    draw = random.Random(f"{SEED} {model}")
    return sorted(draw.sample(grid, min(count, len(grid))))


def predict(config, profile, plan):
    return json.loads(sluice("simulate", config, "--profile", profile, "--json", *sets_of(plan)))


def mean(values):
    values = list(values)
    return sum(values) / len(values)


class Row:
    def __init__(self, model, plan):
        self.model, self.plan, self.runs, self.predicted = model, plan, [], None
        self.drift = 1  # of the machine since the profile, by the plan that is not scored

    @property
    def measured(self):
        return statistics.median(run.seconds for run in self.runs)

    @property
    def spread(self):
        seconds = [run.seconds for run in self.runs]
        return (max(seconds) - min(seconds)) / 2 / self.measured

    @property
    def stages_error(self):
        return statistics.median(run.stages_error for run in self.runs)

    @property
    def memory_error(self):
        return max(device["bytes"] for device in self.predicted["devices"]) / max(run.peak for run in self.runs) - 1

    @property
    def seconds(self):
        return self.predicted["step_s"] * self.drift

    @property
    def error(self):
        return self.seconds / self.measured - 1

    def is_off(self):
        return abs(self.error) > max(0.05, 2 * self.spread)

    def line(self):
        stages, replicas, chunks, schedule = self.plan
        measured = {part: statistics.median(run.parts[part] for run in self.runs) for part in PARTS}
        devices = self.predicted["devices"]
        predicted = {"compute": mean(device["compute_s"] for device in devices),
                     "all-reduce": self.predicted["allreduce_exposed_s"],
                     "optimizer": mean(device["optimizer_s"] for device in devices),
                     "load": self.predicted["load_s"]}
        parts = "  ".join(f"{part} {predicted[part] * 1e3:.1f}/{measured[part] * 1e3:.1f}" for part in PARTS)
        return (f"{self.model:9} {stages} x {replicas}  m={chunks:<2} {schedule:11} predicted {self.seconds * 1e3:8.1f} "
                f"measured {self.measured * 1e3:8.1f} ms (spread {self.spread:5.1%}) error {self.error:+6.1%}"
                f"{' OFF' if self.is_off() else ''}, by stages {self.stages_error:+6.1%}, memory {self.memory_error:+6.1%}   {parts}")


def order(rows):
    """Pairs that are in the right order, and those whose times differ by more than their spreads."""
    right = counted = 0
    for a, b in itertools.combinations(rows, 2):
        if abs(a.measured - b.measured) <= a.spread * a.measured + b.spread * b.measured:
            continue
        counted += 1
        right += (a.measured < b.measured) == (a.seconds < b.seconds)
    return right, counted


def summary(name, rows):
    errors = sorted(abs(row.error) for row in rows)
    pairs = [order([row for row in rows if row.model == model]) for model in {row.model for row in rows}]
    right, counted = (sum(column) for column in zip(*pairs))
    memory = sorted(abs(row.memory_error) for row in rows)
    print(f"{name}: {len(rows)} plans; error median {statistics.median(errors):.1%}, largest {errors[-1]:.1%}; "
          f"{sum(row.is_off() for row in rows)} above max(5 %, twice the spread); order right in {right} of {counted} pairs; "
          f"memory median {statistics.median(memory):.1%}, largest {memory[-1]:.1%}; by what stages took "
          f"{statistics.median(abs(row.stages_error) for row in rows):.1%}")


def main():
    asked = options()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.keep or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for model in asked.models.split(","):
            config, profile = configuration(folder, model, asked), folder / f"{model}.json"
            sluice("profile", config, "--out", profile, *sets_of(CALIBRATION))
            own = [Row(model, plan) for plan in plans_of(model, asked.plans)]
            for row in own:
                row.predicted = predict(config, profile, row.plan)
            calibration = Row(model, CALIBRATION)
            calibration.predicted = predict(config, profile, CALIBRATION)
            for number in range(asked.rounds):
                if number in (0, asked.rounds - 1):
                    calibration.runs.append(run_plan(folder, config, sets_of(CALIBRATION, partition_of(calibration.predicted))))
                for row in own:
                    row.runs.append(run_plan(folder, config, sets_of(row.plan, partition_of(row.predicted))))
            print(calibration.line(), "(not scored)", flush=True)
            for row in own:
                row.drift = calibration.measured / calibration.predicted["step_s"]
                print(row.line(), flush=True)
            summary(model, own)
            rows += own
        if asked.keep:
            table = [{"model": row.model, "plan": row.plan, "partition": partition_of(row.predicted), "runs_s": [run.seconds for run in row.runs],
                      "drift": round(row.drift, 4), "error": round(row.error, 4), "peak_bytes": max(run.peak for run in row.runs)} for row in rows]
            for file in folder.glob("*.toml"):  # a text lies somewhere else on other machines
                kept = file.read_text(encoding="utf-8").replace(str(text_file(asked).parent), "data")
                file.write_text(kept, encoding="utf-8")
            (folder / "steps.json").write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    summary("all", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
