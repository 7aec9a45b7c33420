#!/usr/bin/env python3
"""Is the plan of `sluice tune` the best there is? It beside runs of every plan, on two CPU devices of one thread.

    tuning.py [--model M] [--chunks N,...] [--cuts predicted|all] [--rounds R] [--steps S] [--budget S]
              [--precision fp32|bf16]

`sluice tune` first, timed. Then every plan of the space runs for as many steps: one device, two replicas, or two stages,
with each number of micro-batches and schedule, in the cut that a profile of its own predicts to be best. --cuts all: in
every cut into two, as `sluice tune` looks at them (schedules with several stages a device have too many: in that one).
At last the tuned plan and the three fastest run in turn. Prints how far the tuned plan is from the fastest of these, and
the share of the time of all runs that `sluice tune` took. SLUICE_BINARY names the binary; a quiet machine.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

from plan_runs import MODELS, add_arguments, add_model_arguments, configuration, partition_of, run_plan, sets_of, sluice
from experiments import arguments  # plan_runs says where they are

SCHEDULES = ("gpipe", "1f1b", "eager-1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-h2", "zb-v", "dualpipe-v")


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="resnet18")
    parser.add_argument("--chunks", default="1,2,3,4,6,8,12,16,24,32")
    parser.add_argument("--cuts", choices=("predicted", "all"), default="predicted")
    parser.add_argument("--rounds", type=arguments.positive, default=3)
    parser.add_argument("--budget", type=float, default=120, help="of `sluice tune`, in seconds")
    add_arguments(parser)
    add_model_arguments(parser)
    return parser.parse_args()


def all_plans(chunks):
    plans = [(1, replicas, count, "gpipe") for replicas in (1, 2) for count in chunks]
    return plans + [(2, 1, count, schedule) for count in chunks for schedule in SCHEDULES]


def cuts_of(config, profile, plan, cuts):
    """None where there is no such plan: some schedules need a number of micro-batches of their own."""
    try:
        best = partition_of(json.loads(sluice("simulate", config, "--profile", profile, "--json", *sets_of(plan))))
    except SystemExit as refusal:
        print(f"no plan {plan}: {str(refusal).splitlines()[-1]}", flush=True)
        return []
    if cuts == "predicted" or len(best) != 2:
        return [best]
    return [[first, sum(best) - first] for first in range(1, sum(best))]


def main():
    asked = options()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        config, tuned = configuration(folder, asked.model, asked), folder / "tuned.toml"
        begin = time.monotonic()
        answer = json.loads(sluice("tune", config, "--out", tuned, "--budget", asked.budget, "--json"))
        tune_s = time.monotonic() - begin
        profile = folder / "profile.json"
        sluice("profile", config, "--out", profile, *sets_of((2, 1, 4, "1f1b")))
        sets = {(*plan, tuple(cut)): sets_of(plan, cut) for plan in all_plans([int(word) for word in asked.chunks.split(",")])
                for cut in cuts_of(config, profile, plan, asked.cuts)}
        plans = list(sets)
        begin, seconds = time.monotonic(), {}
        for plan in plans:
            seconds[plan] = run_plan(folder, config, sets[plan]).seconds
        all_s = time.monotonic() - begin
        fastest = sorted(plans, key=seconds.get)[:3]
        runs = {"tuned": []} | {plan: [] for plan in fastest}
        for _ in range(asked.rounds):
            runs["tuned"].append(run_plan(folder, tuned, []).seconds)
            for plan in fastest:
                runs[plan].append(run_plan(folder, config, sets[plan]).seconds)
    medians = {name: statistics.median(of_plan) for name, of_plan in runs.items()}
    for name, middle in medians.items():
        print(f"{name}: {middle * 1e3:.1f} ms ({min(runs[name]) * 1e3:.1f} to {max(runs[name]) * 1e3:.1f})")
    best = min(medians[plan] for plan in fastest)
    print(f"{asked.model}: tuned {answer['chosen']['plan']['schedule']}, {medians['tuned'] / best - 1:+.1%} of the fastest of "
          f"{len(plans)} plans; sluice tune took {tune_s:.0f} s, all runs {all_s:.0f} s: {tune_s / all_s:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
