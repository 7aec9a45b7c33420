#!/usr/bin/env python3
"""What profile.level = "events" costs: steps with and without it take turns in one process.

    .venv/bin/python bench/profile_overhead.py [--rounds 15] [--steps 4] [--models resnet18 vit]

Two figures a model: the cost of a span (bench_recorder) times the spans of a step, over the step; and the ratio of
times of neighbouring measurements, with and without, its median and the 95 % interval of the median (bootstrap): wall
time, and processor time of all threads, which other programs on the machine disturb less. One process, because two
differ by some per cent for as long as they live, whatever they do: each keeps the memory it was given.
"""

import argparse
import json
import random
import statistics
import subprocess

import sides

RECORDER = sides.OURS.with_name("bench_recorder")


def interval_of_median(values, draws=4000):
    drawn = random.Random(1)
    medians = sorted(statistics.median(drawn.choices(values, k=len(values))) for _ in range(draws))
    return medians[int(0.025 * draws)], medians[int(0.975 * draws)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--chunks", type=int, default=4)
    parser.add_argument("--models", nargs="+", default=["resnet18", "vit"])
    args = parser.parse_args()
    sides.prepare(RECORDER)
    span_ns = json.loads(subprocess.run([RECORDER], check=True, capture_output=True).stdout)["span_ns"]
    print(f"one span: {span_ns:.0f} ns")
    for model in args.models:
        command = [sides.OURS, model, "--size", "tiny", "--batch", args.batch, "--threads", args.threads, "--steps",
                   args.steps, "--stages", args.stages, "--chunks", args.chunks]
        measured = {"recorded": [], "plain": []}
        with sides.Side(command) as side:
            for number in range(args.rounds):  # which goes first changes, so that a drift favours neither
                for what in measured if number % 2 == 0 else reversed(measured):
                    measured[what].append(side.measure(what))
        step_ms, spans = (statistics.median(result[key] for result in measured["recorded"])
                          for key in ("step_ms", "spans"))
        print(f"{model}: {spans:.0f} spans in a step of {step_ms:.0f} ms: {100 * span_ns * spans / (1e6 * step_ms):.4f} %")
        for what, key in (("wall", "step_ms"), ("processor", "cpu_ms")):
            ratios = [a[key] / b[key] for a, b in zip(measured["recorded"], measured["plain"])]
            low, high = interval_of_median(ratios)
            print(f"  {what} time with/without: median {statistics.median(ratios):.4f}, 95 % {low:.4f} .. {high:.4f}")


if __name__ == "__main__":
    main()
