#!/usr/bin/env python3
"""A rank is killed or stopped at a seeded moment, again and again: the others end in time and name it, one that lives saves
what was trained, and the run that is started again and again ends as if nothing had happened.

    faults_test.py [MOMENTS [SEED]]        SLUICE_BINARY names the binary
"""

import pathlib
import random
import signal
import sys
import tempfile
import time

import ranks_test
import sluice_cli as cli

RANKS, STEPS, EVERY = 3, 40, 9
HANG_S = 6
IN_TIME_S = 30  # for a dead one, and for a stopped one after HANG_S


def configuration(folder):
    return ranks_test.configuration(
        folder, train={"steps": STEPS, "precision": "fp32"}, pipeline={"stages": 2, "chunks": 2},
        replicas={"connect_timeout_s": 10, "hang_timeout_s": HANG_S}, checkpoint={"every_steps": EVERY})


def check(condition, message, processes=()):
    if not condition:
        raise AssertionError("\n".join([message, *(f"--- rank {rank}: {getattr(process, 'returncode', None)}\n{process.stderr}"
                                                   for rank, process in enumerate(processes))]))


def steps_so_far(run_dir):
    metrics = run_dir / "metrics.jsonl"
    return metrics.read_text().count('"event":"step"') if metrics.exists() else 0


def is_saving(run_dir):
    folder = run_dir / "checkpoints"
    return folder.exists() and any(not path.name.removeprefix("step-").isdigit() for path in folder.iterdir())


def wait_for(when, run_dir, processes, dice):
    """Until the moment has come or the run is over."""
    before = steps_so_far(run_dir)
    wanted = before + dice.randint(1, 6)
    begin = time.monotonic()
    delay = dice.random()
    while all(process.poll() is None for process in processes):
        if when == "start-up" and time.monotonic() - begin > 1.2 * delay:
            return
        if when == "mid-step" and steps_so_far(run_dir) >= wanted:
            time.sleep(0.05 * delay)
            return
        if when == "checkpoint" and steps_so_far(run_dir) >= wanted and is_saving(run_dir):
            return
        time.sleep(0.001)


def disturb(config, run_dir, number, dice):
    """One start of the run with one fault; returns what the fault was and whom it hit, or nothing if the run was over before."""
    when = ("start-up", "mid-step", "checkpoint")[number % 3]
    how = dice.choice([signal.SIGKILL, signal.SIGSTOP])
    victim = dice.randrange(RANKS)
    processes = cli.start_ranks(RANKS, "train", config, "--run-dir", run_dir, "--resume", "auto")
    wait_for(when, run_dir, processes, dice)
    processes[victim].send_signal(how)
    begin = time.monotonic()
    others = [process for rank, process in enumerate(processes) if rank != victim]
    while any(process.poll() is None for process in others) and time.monotonic() - begin < IN_TIME_S + HANG_S + 10:
        time.sleep(0.01)
    took = time.monotonic() - begin
    still_there = [process.pid for process in others if process.poll() is None]
    if how == signal.SIGSTOP:
        processes[victim].send_signal(signal.SIGCONT)
    if still_there:
        for process in processes:
            process.kill()
    done = cli.finish_all(processes)
    what = f"fault {number}: {how.name} of rank {victim}, {when}, at step {steps_so_far(run_dir)}"
    print(f"{what}: the others ended after {took:.1f} s with {[process.returncode for process in others]}", flush=True)
    check(not still_there, f"{what}: some were still there after {took:.0f} s", done)
    if all(process.returncode == 0 for process in others):
        return None
    check(took < IN_TIME_S + (HANG_S if how == signal.SIGSTOP else 0), f"{what}: took {took:.0f} s", done)
    for process in others:
        check(process.returncode == 5, f"{what}: exit code", done)
        check(f"rank {victim}" in cli.error_of(process), f"{what}: the wrong rank is named", done)
    newest = max(cli.checkpoints(run_dir), default=0)
    check(newest >= steps_so_far(run_dir), f"{what}: the newest checkpoint is of step {newest}, so trained steps are lost", done)
    check(done[victim].returncode in ((-9,) if how == signal.SIGKILL else (5,)), f"{what}: the victim's exit code", done)
    return True


def check_curve(run_dir, whole, deaths_of_rank_0):
    """Records are rank 0's: of the step in which it dies it may not have written."""
    ours, theirs = ranks_test.curve(run_dir), ranks_test.curve(whole)
    check(set(ours) <= set(theirs) and ours == sorted(ours), "another loss curve")
    check(len(theirs) - len(ours) <= deaths_of_rank_0, f"{len(theirs) - len(ours)} steps have no record")


def main():
    moments = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        config = configuration(folder)
        whole, run_dir = folder / "whole", folder / "run"
        done = cli.finish_all(cli.start_ranks(RANKS, "train", config, "--run-dir", whole))
        check(all(process.returncode == 0 for process in done), "the undisturbed run failed", done)
        hits = ends = deaths_of_rank_0 = 0
        while hits < moments:
            hit = disturb(config, run_dir, hits, dice)
            hits += hit is not None
            deaths_of_rank_0 += hit == (signal.SIGKILL, 0)
            if STEPS in cli.checkpoints(run_dir):  # to the end before all moments had come: once more from the beginning
                check_curve(run_dir, whole, deaths_of_rank_0)
                ends, deaths_of_rank_0 = ends + 1, 0
                run_dir.rename(folder / f"end-{ends}")
        done = cli.finish_all(cli.start_ranks(RANKS, "train", config, "--run-dir", run_dir, "--resume", "auto"))
        check(all(process.returncode == 0 for process in done), "the last start failed", done)
        check_curve(run_dir, whole, deaths_of_rank_0)
        for file in ("model.safetensors", "optimizer.safetensors"):
            one, other = (cli.checkpoints(run)[STEPS] / file for run in (whole, run_dir))
            check(one.read_bytes() == other.read_bytes(), f"{file} differs")
    print(f"{hits} faults; {ends + 1} runs ended with the loss curve and files of the undisturbed one, bit for bit")


if __name__ == "__main__":
    main()
