"""Carries an experiment out: its runs in order, those that are done already left out, then its table and plots.

An experiment is a module with
  COLUMNS                            of results.csv, after those of record.py
  plan(options)                      its runs, in the order in which they take turns
  prepare(options)                   (may be missing) makes what the runs read, in --out
  wanted(planned, rows)              (may be missing) whether the rows so far still leave a reason to make this run
  places(rows, options)              (may be missing) {name: value} for "{name}" in the settings of a run, from the rows so far
  measure(planned, events, options)  the columns that a run's metrics give, or the lines that its program has printed
  summarise(rows, options)           the rows of the table
  markdown(summary, options)         table.md
  console(summary, options)          (may be missing) what is printed instead of it
  figures(rows, options)             (may be missing) what plots.py draws
"""

import hashlib
import os
import shutil
import statistics
import sys
import time

from . import latex, plots, runs
from .record import write_whole

def say(sentence):
    print(f"experiment.py: {sentence}", file=sys.stderr, flush=True)


def carry_out(experiment, options, record):
    """Returns the summary after all runs. Raises RunFailed if one fails."""
    planned = experiment.plan(options)
    wanted = getattr(experiment, "wanted", lambda run, rows: True)
    if hasattr(experiment, "prepare"):
        experiment.prepare(options)
    program = program_digest(options.sluice)
    if any(row["program"] != program for row in rows_of(planned, record)):
        say("sluice was built anew since some of these runs: the rows will be of different builds")
    for index, run in enumerate(planned):
        if record.row_of(run) or not wanted(run, rows_of(planned, record)):
            continue
        if runs.stopping.is_set():
            raise runs.Interrupted
        left = [other for other in planned[index:] if not record.row_of(other) and wanted(other, rows_of(planned, record))]
        say(f"run {index + 1} of {len(planned)}: {run.label}{time_left(left, record.rows, planned)}")
        record.add(run, {"program": program, **measured_row(experiment, run, options, record)})
    rows = rows_of(planned, record)
    summary = experiment.summarise(rows, options)
    table = experiment.markdown(summary, options)
    write_whole(record.folder / "table.md", table + notes(rows))
    write_whole(record.folder / "table.tex", latex.of_markdown(table, options.experiment))
    if hasattr(experiment, "figures"):
        draw(experiment.figures(rows, options), record.folder)
    return summary


def rows_of(planned, record):
    """Rows of this plan, in its order, without those of other plans."""
    rows = [record.row_of(run) for run in planned]
    return [row for row in rows if row]


def measured_row(experiment, run, options, record):
    command = command_of(experiment, run, options, record)
    folder = record.fresh_folder(run)
    start = time.monotonic()
    row = {"outcome": "done"}
    try:
        row |= experiment.measure(run, runs.Run(run, folder).carry_out(command), options)
    except runs.RunFailed as error:
        of_the_limit = options.device != "cpu" or "device.memory_limit" in str(error)  # and not of a host that is busy
        if run.may_run_out and error.code == runs.OUT_OF_MEMORY and of_the_limit:
            row = {"outcome": "out of memory", "said": str(error)}
        elif run.may_diverge and error.code == runs.DIVERGED:
            row = {"outcome": "diverged", "said": str(error)}
        else:
            raise
    if not run.keep_checkpoints:
        shutil.rmtree(folder / "run" / "checkpoints", ignore_errors=True)
    return row | {"wall_s": time.monotonic() - start}


def command_of(experiment, run, options, record):
    if run.program:
        return [str(options.sluice.parent / run.program[0]), *map(str, run.program[1:])]
    command = [str(options.sluice), "train", str(runs.ROOT / "configs" / f"{run.config}.toml")]
    places = {"out": record.folder.resolve()}
    if hasattr(experiment, "places"):
        places |= experiment.places(record.rows, options)
    for value in [f"{key}={text(value)}" for key, value in run.sets.items()] + options.sets:
        for name, place in places.items():
            value = value.replace(f"{{{name}}}", text(place))
        command += ["--set", value]
    return command


def text(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


def program_digest(path):
    with open(path, "rb") as file:
        return "p" + hashlib.file_digest(file, "sha256").hexdigest()[:8]


def time_left(left, rows, planned):
    """Estimated time of the remaining runs, from finished runs of their kind; empty without one."""
    kinds = {run.name: run.kind for run in planned}
    taken = {}
    for row in rows:
        taken.setdefault(kinds.get(row["run"]), []).append(row["wall_s"])
    if not rows:
        return ""
    known = [value for values in taken.values() for value in values]
    seconds = sum(statistics.median(taken.get(run.kind, known)) for run in left)
    return f" (about {int(seconds // 60)} min {int(seconds % 60)} s left)"


def notes(rows):
    programs = {row["program"] for row in rows}
    mixed = f"\nThe rows were measured with {len(programs)} different builds of the program (results.csv, `program`).\n"
    return f"\n{os.cpu_count()} cores. Every run is a row of results.csv.\n" + (mixed if len(programs) > 1 else "")


def draw(figures, folder):
    missing = plots.draw(figures, folder, runs.ROOT / ".venv" / "bin" / "python")
    if missing:
        say(missing)
