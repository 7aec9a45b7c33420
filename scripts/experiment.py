#!/usr/bin/env python3
"""Experiments that run `sluice train`, or a program that measures, several times, write a row of results.csv for each, and make a table.

usage: scripts/experiment.py EXPERIMENT [--scale small|full] [OPTIONS]

  single_dp_ddp       one device, replicas in one process, and processes
  pipe_vs_ddp         {DDP, Pipe+DDP} x {chunks, batch}: memory a device, images/s, time to train, what runs out of memory
  elastic_freeze      fine-tuning with layers that freeze: effect of elastic pipeline, replicas and cache
  anytime             anytime and fixed mini-batches on a parameter server whose workers stall
  partitions          cost of computing a batch in slices, as anytime workers do
  batch_norm_slicing  effect of slices on the accuracy of a model with batch norm
  communication       push and pull, and all-reduce: time by size and number of participants
  two_nodes           one node, two with the same global batch, and two with the same batch a node: time, top-1, top-5
  lr_sweep            learning rates by batch: accuracy, what diverges, how the best rate grows with the batch
  dual_batch          some or all workers of a parameter server with a smaller batch: accuracy and time by how many

scripts/experiment.py EXPERIMENT --help has the options of each. docs/how-to/experiments.md

--out DIR (default: runs/experiments/EXPERIMENT-DATE-TIME) receives results.csv, table.md, table.tex, plots (PNG and PDF)
if matplotlib is installed, and the log and run directory of each run. The same call with the same --out continues after
the last finished run; other settings are an error. --set key=value comes last and applies to every run. Exit codes: that of
a failed run; 2 bad usage; 130 interrupted; else 0.
"""

import argparse
import json
import os
import pathlib
import signal
import sys
import time

from experiments import (anytime, batch_norm_slicing, communication, dual_batch, elastic_freeze, elastic_squad, lr_sweep, partitions, pipe_squad,
                         pipe_vs_ddp, record, runner, runs, single_dp_ddp, two_nodes)

ROOT = runs.ROOT
INTERRUPTED = 130
EXPERIMENTS = {
    "single_dp_ddp": single_dp_ddp,
    "pipe_vs_ddp": pipe_vs_ddp,
    "elastic_freeze": elastic_freeze,
    "anytime": anytime,
    "partitions": partitions,
    "batch_norm_slicing": batch_norm_slicing,
    "communication": communication,
    "dual_batch": dual_batch,
    "two_nodes": two_nodes,
    "lr_sweep": lr_sweep,
}
WITH_TASK = {("elastic_freeze", "squad"): elastic_squad, ("pipe_vs_ddp", "squad"): pipe_squad}
NO_SETTINGS = {"experiment", "out", "json", "sluice"}  # they change nothing that is measured


def add_common(parser, scales):
    parser.add_argument("--scale", choices=scales, default="small")
    parser.add_argument("--data", type=pathlib.Path, metavar="DIR", help="folder of CIFAR-10 or Fashion-MNIST, or of SQuAD's JSON with --task squad")
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="KEY=VALUE", help="one more value of the configuration")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="where results are kept; of an earlier call: go on there")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--sluice", type=pathlib.Path, default=ROOT / "build" / "release" / "sluice", help=argparse.SUPPRESS)


def chosen(options):
    """The module of the experiment with its task."""
    return WITH_TASK.get((options.experiment, getattr(options, "task", None)), EXPERIMENTS[options.experiment])


def parse_arguments():
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form, usage=argparse.SUPPRESS)
    each = parser.add_subparsers(dest="experiment", required=True, help=argparse.SUPPRESS, metavar="EXPERIMENT")
    for name, experiment in EXPERIMENTS.items():
        one = each.add_parser(name, description=experiment.__doc__, formatter_class=form, usage=f"experiment.py {name} [OPTIONS]")
        add_common(one, experiment.SCALES)
        experiment.add_arguments(one)
    options = parser.parse_args()
    experiment = chosen(options)
    of_scale = experiment.defaults(options) if hasattr(experiment, "defaults") else experiment.SCALES[options.scale]
    for name, value in of_scale.items():
        if getattr(options, name, None) is None:
            setattr(options, name, value)
    if not os.access(options.sluice, os.X_OK):
        parser.exit(2, f"experiment.py: {options.sluice} is missing: run scripts/bootstrap.sh\n")
    wrong = getattr(experiment, "check", lambda _: "")(options)
    if wrong:
        parser.exit(2, f"experiment.py: {wrong}\n")
    if not options.out:
        options.out = ROOT / "runs" / "experiments" / f"{options.experiment}-{time.strftime('%Y%m%d-%H%M%S')}"
    return options


def asked(options, experiment):
    """What a folder of results is for: all that an experiment was asked, less what only says how many runs of it are made."""
    kept = {name: value for name, value in vars(options).items() if name not in NO_SETTINGS | set(experiment.GROWS)}
    if kept.get("task") == "images":
        del kept["task"]  # folders of earlier versions go on
    return {"experiment": options.experiment, **kept}


def main():
    options = parse_arguments()
    experiment = chosen(options)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: runs.stopping.set())
    goes_on = f"--out {options.out} goes on after the runs that are done"
    try:
        place = record.Record(options.out, asked(options, experiment), experiment.COLUMNS)
        runner.say(f"results are in {options.out}")
        summary = runner.carry_out(experiment, options, place)
    except record.Refused as error:
        runner.say(error)
        sys.exit(error.code)
    except runs.RunFailed as error:
        runner.say(f"{error} ({goes_on})")
        sys.exit(error.code)
    except runs.Interrupted:
        runner.say(f"interrupted: {goes_on}")
        sys.exit(INTERRUPTED)
    if options.json:
        print(json.dumps({**asked(options, experiment), **{name: getattr(options, name) for name in experiment.GROWS}, "rows": summary}, indent=2, default=str))
    else:
        print(getattr(experiment, "console", experiment.markdown)(summary, options), end="")


if __name__ == "__main__":
    main()
