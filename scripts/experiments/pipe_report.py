"""Tables and figures of pipe_vs_ddp."""

import dataclasses
import statistics
import typing

from . import arguments


@dataclasses.dataclass(frozen=True)
class Work:
    """What the runs train, and what its tables call it."""

    unit: str  # of a sample
    sets: typing.Callable  # (samples of a step or more, options): the keys of model, data and optimizer
    title: typing.Callable  # (options): model and data
    epochs: int  # of the time to train
    samples: int  # of one of these epochs
    published: dict  # {(way, devices): sentence}; empty: nothing was published

    @property
    def rate(self):
        return f"{self.unit}s_per_s"


def replicas_of(devices, way, options):
    return options.nodes * (devices if way == "ddp" else 1)


def summarise(rows, options, work):
    """A row per batch; each rate also relative to the fastest DDP on as many devices."""
    summary = []
    for (devices, way, chunks), batches in options.ladders:
        for batch in batches:
            mine = rows_of_batch(rows, {"devices": devices, "way": way, "chunks": chunks, "batch": batch})
            if mine:
                summary.append(of_one_batch(mine, options, work))
    for row in done_of(summary):
        base = max((one for one in done_of(summary) if (one["devices"], one["way"]) == (row["devices"], "ddp")), default=None,
                   key=lambda one: one[work.rate])
        if base and row is not base:
            row["over_ddp"] = row[work.rate] / base[work.rate]
            row["overlaps"] = arguments.ranges_overlap(*([one[work.rate] for one in rows_of_batch(rows, of)] for of in (row, base)))
    return summary


def rows_of_batch(rows, of):
    return [row for row in rows if all(row[name] == of[name] for name in ("devices", "way", "chunks", "batch"))]


def done_of(summary):
    return [row for row in summary if row["outcome"] == "done"]


def of_one_batch(rows, options, work):
    """Out of memory if one round was; rates are those of the other rounds."""
    first = next((row for row in rows if row["outcome"] != "done"), rows[0])
    kept = {name: first[name] for name in ("devices", "way", "chunks", "batch", "global_batch", "outcome", "said")}
    kept |= {"rounds": len(rows), "replicas": replicas_of(kept["devices"], kept["way"], options)}
    if kept["outcome"] == "done":
        rates, memory = [row[work.rate] for row in rows], [row["memory_bytes"] or 0 for row in rows]
        rate = statistics.median(rates)
        kept |= {work.rate: rate, "memory_bytes": max(memory), "minutes": work.epochs * work.samples / rate / 60}
        arguments.add_range(kept, work.rate, rates)
        arguments.add_range(kept, "memory_bytes", memory)
    return kept


def markdown(summary, options, work):
    heads = ["devices", "way", "replicas", "chunks", "batch a replica", "global batch", "rounds", "memory a device, MiB",
             f"{work.unit}s/s: median (range)", "over the fastest DDP", "time to train, min", "outcome"]
    cells = [[f"{options.nodes} x {row['devices']}", name_of(row), row["replicas"], row["chunks"], row["batch"],
              row["global_batch"], row["rounds"], *numbers(row, work), row["outcome"]] for row in summary]
    said = [f"- {row['said']}" for row in summary if row["said"]]
    return "\n".join([
        "# pipe_vs_ddp\n",
        f"{work.title(options)}, {options.device} devices with a "
        f"device.memory_limit of {options.limit}, which limits the cut of a pipeline; medians of {options.steps} steps after {options.warmup}, "
        f"{arguments.count_with_spread(options.rounds, 'round')}. Time to train: {work.epochs} epochs of {work.samples} {work.unit}s at that rate.\n",
        arguments.table(heads, cells),
        f"{arguments.INCONCLUSIVE_NOTE}\n",
        *published_lines(work),
        "What the runs said that ran out of memory:\n", *said, ""])


def published_lines(work):
    theirs = [["Pipe+DDP" if way == "pipe" else "DDP", line] for (way, _), line in work.published.items()]
    return ["Published (2 nodes, GPUs of 16 GB, batch a replica):\n", arguments.table(["way", "GPUs a node: batch: result"], theirs)] if theirs else []


def name_of(row):
    if row["way"] == "ddp":
        return "DDP"
    return "Pipe+DDP" if row["replicas"] > 1 else "Pipe"


def numbers(row, work):
    if row["outcome"] != "done":
        return ["", "", "", ""]
    over = f"{row['over_ddp']:.2f}x{arguments.inconclusive_mark(row['overlaps'])}" if "over_ddp" in row else ""
    return [f"{row['memory_bytes'] / 2**20:.0f}", arguments.ranged(row, work.rate), over, f"{row['minutes']:.0f}"]


def figures(rows, options, work):
    by_name = {}
    for row in summarise(rows, options, work):
        chunks = f", {row['chunks']} chunks" if row["way"] == "pipe" else ""
        by_name.setdefault(f"{name_of(row)}, {row['devices']} devices{chunks}", []).append(row)
    failed = {name: [row["global_batch"] for row in mine if row["outcome"] != "done"] for name, mine in by_name.items()}
    def panel(label, name, factor=1):
        return {"y": label, "kind": "line", "log": "x", "zero": True, "failed": {"as": "out of memory", "at": failed},
                "series": {of: arguments.points(done_of(mine), "global_batch", name, factor) for of, mine in by_name.items()}}
    return [{"file": "pipe_vs_ddp", "title": "DDP and Pipe+DDP", "note": arguments.note(options.rounds, "round", "medians of rates, most memory"), "x": "global batch",
             "panels": [panel(f"{work.unit}s/s", work.rate), panel("MiB a device", "memory_bytes", 2**-20)]}]
