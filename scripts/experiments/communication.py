"""What it takes to exchange weights and gradients on this machine, against their size and how many take part, over loopback:
  server      push and pull of one worker of a parameter server, while all others do the same (bench_parameter_server: workers
              compute nothing; the server checks, adds up, updates and hands out)
  allreduce   the all-reduce of one step of as many processes (an mlp of that size, one sample each; allreduce_ms less skew_ms)
Rounds take turns.
  --scale small   1 to 32 MiB, 1 to 8 workers, 2 and 4 processes: about 8 minutes on two cores (default)
  --scale full    the same and 128 MiB, 16 workers, 8 processes, longer and more rounds"""

import json
import math
import statistics

from . import arguments, runs

SMALL = {"device": "cpu", "rounds": 2, "sizes": [1, 2, 8, 32], "workers": [1, 2, 4, 8], "processes": [2, 4], "steps": 20, "seconds": 1.0}
FULL = {"device": "cpu", "rounds": 5, "sizes": [1, 2, 8, 32, 128], "workers": [1, 2, 4, 8, 16], "processes": [2, 4, 8], "steps": 50, "seconds": 2.0}
SCALES = {"small": SMALL, "full": FULL}
WAYS = ["server", "allreduce"]
WARMUP = 5  # steps of the all-reduce that do not count
BENCH = "bench/bench_parameter_server"
COLUMNS = ["way", "mib", "peers", "round", "bytes", "ms", "gb_per_s", "least_share"]
GROWS = ["rounds"]
HIDDEN, CLASSES, CHANNELS = 128, 10, 3


def add_arguments(parser):
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="default: both")
    parser.add_argument("--sizes", nargs="+", type=arguments.positive, metavar="MIB", help="of the weights")
    parser.add_argument("--workers", nargs="+", type=arguments.positive, metavar="N", help="numbers of workers of the server")
    parser.add_argument("--processes", nargs="+", type=arguments.positive, metavar="N", help="numbers of processes of the all-reduce")
    parser.add_argument("--seconds", type=float, metavar="S", help="that a server is measured for")
    arguments.add_numbers(parser, steps="steps of the all-reduce that are measured", rounds="runs of each")


def check(options):
    if options.data:
        return "--data: communication reads no data"
    if "server" in options.ways and not (options.sluice.parent / BENCH).exists():
        return f"{options.sluice.parent / BENCH} is missing: run scripts/bootstrap.sh, or leave it out with --ways allreduce"
    if not 0 < options.seconds < math.inf:
        return f"--seconds {options.seconds} is not above 0"
    if 1 in options.processes:
        return "--processes 1: an all-reduce takes two at least"
    return ""


def plan(options):
    runs_of = {"server": (options.workers, server_run), "allreduce": (options.processes, allreduce_run)}
    return [
        runs_of[way][1](mib, peers, number, options)
        for number in range(1, options.rounds + 1)
        for way in options.ways
        for mib in options.sizes
        for peers in runs_of[way][0]
    ]


def columns(way, mib, peers, number):
    return {"way": way, "mib": mib, "peers": peers, "round": number}


def server_run(mib, workers, number, options):
    program = (BENCH, "--megabytes", mib, "--workers", workers, "--seconds", options.seconds, "--repeats", 1)
    return runs.Planned(name=f"round{number}-server-{mib}MiB-{workers}", kind="server", title=f"server, {mib} MiB, {workers} workers, round {number}", sets={},
                        program=program, columns=columns("server", mib, workers, number))


def allreduce_run(mib, processes, number, options):
    sets = arguments.device_sets(options) | arguments.data_sets(options) | {
        "model.name": "mlp",
        "model.image_size": image_size_of(mib * 2**20),
        "data.samples": max(64, processes),
        "data.crop_padding": 0,
        "data.flip": False,
        "train.global_batch": processes,
        "train.steps": WARMUP + options.steps,
        "train.optimizer": "sgd",
        "train.lr_schedule": "constant",
        "train.eval_every_steps": arguments.ONLY_AT_THE_END,
        "train.eval_batch": processes,
        "pipeline.stages": 1,
        "pipeline.chunks": 1,
        "checkpoint.every_minutes": 0,
        "log.tensorboard": False,
    }
    return runs.Planned(name=f"round{number}-allreduce-{mib}MiB-{processes}", kind="allreduce", processes=processes, sets=sets,
                        title=f"all-reduce, {mib} MiB, {processes} processes, round {number}", columns=columns("allreduce", mib, processes, number))


def image_size_of(size_bytes):
    """Image size of the mlp whose gradients have about this many bytes, nearly all in the first layer."""
    rest = HIDDEN + HIDDEN * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES
    return max(1, round(math.sqrt((size_bytes / 4 - rest) / (CHANNELS * HIDDEN))))


def measure(planned, events, options):
    if planned.kind == "server":
        return of_the_bench(events, planned.columns["mib"] * 2**20, planned.columns["peers"])
    steps = runs.steps_after(planned, events, WARMUP)
    ms = statistics.median(step["allreduce_ms"] - step["skew_ms"] for step in steps)
    size = steps[-1]["sync_bytes"]
    return {"bytes": size, "ms": ms, "gb_per_s": size / ms * 1e-6}


def of_the_bench(lines, size, workers):
    """Bytes pushed and pulled per second by all workers together."""
    try:
        measured = json.loads(lines[-1])
        rate, least_share = measured["bytes_per_s"], measured["least_share"]
    except (IndexError, ValueError, KeyError):
        raise runs.RunFailed(f"{BENCH} printed something else than this version reads: build both from the same sources", runs.BUG) from None
    return {"bytes": size, "ms": 2000 * size * workers / rate if rate > 0 else None, "gb_per_s": rate * 1e-9, "least_share": least_share}


def summarise(rows, options):
    keys = dict.fromkeys((row["way"], row["mib"], row["peers"]) for row in rows)
    return [of_one([row for row in rows if (row["way"], row["mib"], row["peers"]) == key]) for key in keys]


def of_one(rows):
    summary = {name: rows[0][name] for name in ("way", "mib", "peers", "bytes")}
    times = [row["ms"] for row in rows if row["ms"] is not None]
    summary |= {"ms_min": min(times, default=None), "ms_max": max(times, default=None)}
    for name in ("ms", "gb_per_s", "least_share"):
        summary[name] = arguments.median_or_none(row[name] for row in rows)
    return summary


def markdown(summary, options):
    lines = ["# communication\n", f"Over loopback; medians and ranges of {arguments.count_with_spread(options.rounds, 'round')}.\n"]
    servers, sums = ([row for row in summary if row["way"] == way] for way in WAYS)
    if servers:
        heads = ["MiB", "workers", "push + pull of a worker, ms", "GB/s of the server, both ways", "least worker's share of an equal one"]
        cells = [[row["mib"], row["peers"], spread(row), number(row["gb_per_s"]), number(row["least_share"])] for row in servers]
        lines += ["## Parameter server\n", arguments.table(heads, cells)]
    if sums:
        cells = [[f"{row['bytes'] / 2**20:.1f}", row["peers"], spread(row), number(row["gb_per_s"])] for row in sums]
        lines += ["## All-reduce\n", arguments.table(["MiB", "processes", "ms", "GB/s of gradients"], cells)]
    return "\n".join([*lines, "Published (MPI Reduce + Bcast, 8 KiB to 32 MiB, 1 to 99 workers): a plot without numbers.\n"])


def spread(row):
    return "too slow to tell" if row["ms"] is None else arguments.ranged(row, "ms", 2)


def number(value):
    return "" if value is None else f"{value:.2f}"


def figures(rows, options):
    """Time by size, a series per number of peers; and by peers, a series per size."""
    summary = [{**row, "sent_mib": row["bytes"] / 2**20} for row in summarise(rows, options) if row["ms"] is not None]

    def panels(x, name_of):
        result = []
        for way, label, peers in (("server", "push + pull, ms", "workers"), ("allreduce", "all-reduce, ms", "processes")):
            series = {}
            for row in summary:
                if row["way"] == way:
                    series.setdefault(name_of(row, peers), []).append(row)
            if series:
                result.append({"y": label, "kind": "line", "log": "xy", "series": {name: arguments.points(of, x, "ms") for name, of in series.items()}})
        return result
    note = arguments.note(options.rounds, "round", "medians")
    return [{"file": "communication", "title": "time against size", "note": note, "x": "MiB", "panels": panels("sent_mib", lambda row, peers: f"{row['peers']} {peers}" if row["peers"] > 1 else "one worker")},
            {"file": "communication_peers", "title": "time against how many take part", "note": note, "x": "workers or processes",
             "panels": panels("peers", lambda row, _: f"{row['sent_mib']:.3g} MiB")}]
