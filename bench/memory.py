#!/usr/bin/env python3
"""How well a plan's memory is known before it runs: `sluice memory` beside `sluice train`, plan by plan, on CPU devices.

    memory.py [--models M,...] [--plans N] [--boundaries N] [--precision fp32|bf16] [--keep FOLDER]

For each model one `sluice profile` of two devices; nothing is fitted to the plans that are scored. Plans are drawn from
stages x replicas <= 2, 1 to 8 micro-batches, four schedules, with and without recomputation, and batches of one to four
times the profiled one. Prints what the fullest device was expected to hold, its bound and what it held, and in all the
errors, and how often a bound was under. Then, of the first plans, the boundary: with the bound of a plan as the limit, the
largest batch that fits by the table is run under that limit, and larger ones until one ends out of memory
(`sluice memory --prove`). SLUICE_BINARY names the binary. Other work on the machine does no harm but to the time it takes.
"""

import argparse
import json
import pathlib
import random
import statistics
import sys
import tempfile

from plan_runs import cli, sets, sluice, two_stage_plans
from experiments import arguments  # plan_runs says where they are

SEED = 23
MODELS = {  # and the batch that is profiled, in four micro-batches
    "resnet8": ({"name": "resnet8", "image_size": 32}, 64),
    "resnet18": ({"name": "resnet18"}, 32),
    "vit-nano": ({"name": "vit", "size": "nano", "image_size": 32, "patch_size": 4}, 64),
    "vit-tiny": ({"name": "vit", "size": "tiny", "image_size": 32, "patch_size": 4}, 32),
}
ALL = "900TiB"


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--plans", type=arguments.positive, default=12, help="of each model")
    parser.add_argument("--boundaries", type=int, default=2, help="of each model")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for configurations and profiles")
    return parser.parse_args()


def plans_of(model, count):
    grid = [(1, replicas, chunks, "gpipe") for replicas in (1, 2) for chunks in (1, 2, 4)]
    grid += two_stage_plans((1, 2, 4, 8))
    grid = [(*plan, recompute, batches) for plan in grid for recompute in ("none", "layer") for batches in (1, 2, 4)]
    return random.Random(f"{SEED} {model}").sample(grid, min(count, len(grid)))


def sets_of(plan, batch):
    stages, replicas, chunks, schedule, recompute, times = plan
    return sets({"pipeline.stages": stages, "replicas.local": replicas, "pipeline.chunks": chunks, "pipeline.schedule": schedule,
                 "pipeline.recompute": recompute, "train.global_batch": batch * times})


def configuration(folder, name, precision):
    model, batch = MODELS[name]
    return cli.write_config(
        folder / f"{name}.toml", device={"list": "cpu", "threads": 1}, model=model,
        data={"name": "shapes", "samples": 4 * batch, "workers": 1}, pipeline={"stages": 2, "chunks": 4},
        train={"steps": 2, "precision": precision, "global_batch": batch, "eval_limit": 1, "lr": 1e-4}, profile={"steps": 2},
        log={"tensorboard": False})


def table(config, profile, plan, batch, limit, *words):
    chunks, times = plan[2], plan[5]
    return json.loads(sluice("memory", config, "--profile", profile, "--limit", limit, "--batches", batch * times, "--chunks", chunks,
                             "--json", *sets_of(plan, batch), *words))


def measured_peak(folder, config, plan, batch, cell):
    partition = f"[{','.join(map(str, cell['plan']['partition']))}]"
    with tempfile.TemporaryDirectory(dir=folder) as run_dir:
        summary = json.loads(sluice("train", config, "--run-dir", pathlib.Path(run_dir) / "run", "--json",
                                    *sets_of(plan, batch), *sets({"pipeline.partition": partition})))
    return max(held for device, held in summary["peak_memory_bytes"].items() if ":" in device)


def mib(held):
    return f"{held / 2**20:.2f}"


def score(folder, name, asked, rows):
    config, profile, batch = configuration(folder, name, asked.precision), folder / f"{name}.json", MODELS[name][1]
    sluice("profile", config, "--out", profile)
    for number, plan in enumerate(plans_of(name, asked.plans)):
        cell = table(config, profile, plan, batch, ALL)["cells"][0]
        peak = measured_peak(folder, config, plan, batch, cell)
        error = cell["expected_bytes"] / peak - 1
        rows.append((error, cell["bound_bytes"] < peak))
        stages, replicas, chunks, schedule, recompute, times = plan
        print(f"{name:9} {stages} x {replicas} batch {batch * times:<4} m={chunks} {schedule:11} recompute {recompute:5} "
              f"expected {mib(cell['expected_bytes']):>8} bound {mib(cell['bound_bytes']):>8} held {mib(peak):>8} MiB "
              f"error {error:+6.1%}{' UNDER' if rows[-1][1] else ''}", flush=True)
        if number < asked.boundaries:
            proof = table(config, profile, plan, batch, cell["bound_bytes"], "--prove")["proof"]
            print("   " + "; ".join(f"{run['global_batch']}: {run['end']}" for run in proof), flush=True)


def main():
    asked = options()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.keep or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name in asked.models.split(","):
            score(folder, name, asked, rows)
    errors = sorted(abs(error) for error, _ in rows)
    print(f"{len(rows)} plans: error median {statistics.median(errors):.1%}, largest {errors[-1]:.1%}; "
          f"{sum(error > 0.1 for error in errors)} above 10 %; {sum(under for _, under in rows)} bounds under")
    return 0


if __name__ == "__main__":
    sys.exit(main())
