"""The `sluice` binary for Python tests: configurations, runs, what a run directory holds.

The binary is the one that SLUICE_BINARY names. Temporary directories follow TMPDIR.
"""

import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from experiments.ranks import environment_without_launchers, free_port, rank_environment  # noqa: E402

BINARY = os.environ.get("SLUICE_BINARY", "sluice")
# The slowest machine may be this slow; nothing waits this long when all is well.
PATIENCE_S = 240


def options(**tables):
    """options(train={"lr": 0.1}) -> ["--set", "train.lr=0.1"]; values as TOML takes them."""
    words = []
    for table, values in tables.items():
        for key, value in values.items():
            words += ["--set", f"{table}.{key}={json.dumps(value)}"]
    return words


def write_config(path, **tables):
    """A TOML file with these tables; returns its path."""
    lines = []
    for table, values in tables.items():
        lines.append(f"[{table}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def start(*arguments, cwd=None, env=None, stdin=subprocess.DEVNULL, **popen):
    """Starts sluice without waiting; without `env` it is no rank, whoever has launched the test."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [BINARY, *map(str, arguments)], cwd=cwd, env=environment_without_launchers() if env is None else env, stdin=stdin,
        text=True, **(pipes | popen))


def finish(process):
    """Waits; returns it with returncode, stdout, stderr as text."""
    try:
        process.stdout, process.stderr = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process


def run(*arguments, cwd=None, **popen):
    return finish(start(*arguments, cwd=cwd, **popen))


def must_run(*arguments, **more):
    """run() that raises with the error output when sluice fails."""
    done = run(*arguments, **more)
    if done.returncode != 0:
        raise AssertionError(f"sluice {' '.join(map(str, arguments))}: exit code {done.returncode}\n{done.stderr}")
    return done


def kept_profile(*words):
    """Profiles until the cost cache keeps what was measured: it keeps nothing of a busy machine."""
    for _ in range(3):
        done = must_run("profile", *words)
        if "not saving the measured costs" not in done.stderr:
            return done
    raise unittest.SkipTest(f"the machine is busy: {done.stderr}")


def error_of(done):
    """The last line that sluice wrote to standard error: its error message."""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else ""


def events(run_dir, name=None):
    """The lines of metrics.jsonl, or those of one event; of a run that goes on, without the line it is just writing."""
    file = pathlib.Path(run_dir) / "metrics.jsonl"
    if not file.exists():
        return []
    written, _, _ = file.read_text(encoding="utf-8").rpartition("\n")
    lines = [json.loads(line) for line in written.splitlines()]
    return [line for line in lines if name in (None, line["event"])]


def column(run_dir, name, event="step"):
    """What every such event says of `name`, in order."""
    return [line[name] for line in events(run_dir, event)]


def checkpoints(run_dir):
    """The checkpoint directories of a run by step; those still being written have other names and are left out."""
    folder = pathlib.Path(run_dir) / "checkpoints"
    steps = {path.name.removeprefix("step-"): path for path in folder.glob("step-*")} if folder.exists() else {}
    return {int(step): steps[step] for step in sorted(filter(str.isdigit, steps), key=int)}


def wait_until(condition, process):
    """Waits until condition() holds; fails when the process ends or time runs out first."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if process.poll() is not None:
            done = finish(process)
            raise AssertionError(f"sluice ended early with {done.returncode}:\n{done.stderr}")
        if time.monotonic() > deadline:
            process.kill()
            raise AssertionError("what the test waits for did not happen")
        time.sleep(0.01)


def wait_for(condition, what):
    """As wait_until(), where no process of ours stands for what is waited for."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"this did not happen: {what}")
        time.sleep(0.05)


def poor_machine(**shortage):
    """The environment of a process under tests/support/poor_machine.cpp with these variables."""
    return {"LD_PRELOAD": os.environ["SLUICE_POOR_MACHINE"], "ASAN_OPTIONS": "verify_asan_link_order=0", **shortage}


def start_ranks(size, *arguments, arguments_of=None, environments_of=None, **popen):
    """Starts `size` processes of one run; arguments_of[rank], environments_of[rank]: further ones of a rank."""
    port = free_port()
    return [start(*arguments, *(arguments_of or {}).get(rank, ()),
                  env=rank_environment(rank, size, port) | (environments_of or {}).get(rank, {}), **popen)
            for rank in range(size)]


def finish_all(processes):
    """Waits for all; their output is read side by side, so that none of them blocks on it."""
    with concurrent.futures.ThreadPoolExecutor(len(processes)) as pool:
        return list(pool.map(finish, processes))


def must_run_ranks(size, *arguments):
    """A run of `size` processes, each of which ends well; [rank]."""
    if size == 1:
        return [must_run(*arguments)]
    done = finish_all(start_ranks(size, *arguments))
    if any(process.returncode for process in done):
        raise AssertionError("\n".join(f"rank {rank}: exit code {process.returncode}\n{process.stderr}"
                                       for rank, process in enumerate(done)))
    return done


def stop(process, number=signal.SIGTERM):
    process.send_signal(number)
    return finish(process)
