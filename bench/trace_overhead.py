#!/usr/bin/env python3
"""What `train --trace` costs the steps that it traces: ten of them beside the ten before and the ten after, in one run.

    .venv/bin/python bench/trace_overhead.py [--rounds 7] [--models resnet18 vit] [--level torch]

Prints for each model the ratio of the medians, traced over not traced, of each round, and their median. Writing
the files comes after the last one and is in none of these. One run, because two processes differ by some per cent.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

import sides

FIRST, TRACED = 16, 10


def one_run(model, args, folder):
    config = folder / "run.toml"
    config.write_text(f"""
[device]
list = "cpu"
threads = 1
[model]
name = "{model}"
image_size = 32
{'size = "tiny"' if model == "vit" else ""}
[data]
name = "shapes"
samples = 4096
[train]
steps = {FIRST + 2 * TRACED}
global_batch = {args.batch}
lr = 0.01
[profile]
level = "{args.level}"
[pipeline]
stages = {args.stages}
chunks = {args.chunks}
""", encoding="utf-8")
    run_dir = folder / "run"
    subprocess.run([sides.OURS.parents[1] / "sluice", "train", config, "--run-dir", run_dir, "--quiet",
                    "--trace", f"{FIRST}..{FIRST + TRACED - 1}"], check=True, capture_output=True)
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    times = {line["step"]: line["step_ms"] for line in lines if line["event"] == "step"}
    traced = [times[step] for step in range(FIRST, FIRST + TRACED)]
    others = [times[step] for step in range(FIRST - TRACED, FIRST)]
    others += [times[step] for step in range(FIRST + TRACED, FIRST + 2 * TRACED)]
    return statistics.median(traced) / statistics.median(others)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--chunks", type=int, default=4)
    parser.add_argument("--level", default="events", help="of profile.level; torch: LibTorch's profiler runs in these steps")
    parser.add_argument("--models", nargs="+", default=["resnet18", "vit"])
    args = parser.parse_args()
    for model in args.models:
        ratios = []
        for _ in range(args.rounds):
            with tempfile.TemporaryDirectory() as folder:
                ratios.append(one_run(model, args, pathlib.Path(folder)))
        print(f"{model}: traced / not traced {', '.join(f'{ratio:.3f}' for ratio in ratios)}; "
              f"median {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
