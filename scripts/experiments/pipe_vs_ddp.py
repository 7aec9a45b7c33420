"""{DDP, Pipe+DDP} x {chunks, batch}: memory a device, images/s, time to train, and which batch runs out of memory.
  ddp     as many processes as devices, each with the whole model on one device
  pipe    a pipeline over the devices of a node, --nodes replicas of it, a process each
A batch is one replica's: of a device in ddp, of a pipeline in pipe. Every way climbs a ladder of batches until a run really
ends for want of memory in its device.memory_limit (exit code 4); rounds take turns.
  --scale small   2 CPU devices of one thread each, ViT tiny on shapes, 1 node: about 5 minutes (default)
  --scale full    2 x 3 and 2 x 4 GPUs with 16 GiB each, ViT base; the published batches first

All processes are started on this machine: a node is a process group here, and --scale full wants 8 GPUs in one machine
(--nodes 1: 4). Over several machines, the scripts run.sh and run_ddp.sh start the same rows one by one (docs/how-to/launch.md)."""

import statistics

from . import arguments, runs

SMALL = {
    "device": "cpu", "nodes": 1, "steps": 3, "warmup": 1, "rounds": 2, "size": "tiny", "image_size": 32, "patch_size": 4, "limit": "304MiB",
    # (devices a node, way, chunks): batches a replica, rising
    "ladders": [((2, "ddp", 1), [16, 24, 32]), ((2, "pipe", 4), [64, 128, 192, 256]), ((2, "pipe", 8), [128, 256, 384, 512])],
}
FULL = {
    "device": "cuda", "nodes": 2, "steps": 100, "warmup": 20, "rounds": 3, "size": "base", "image_size": 224, "patch_size": 16, "limit": "16GiB",
    "ladders": [
        ((3, "ddp", 1), [64, 128, 256, 512, 1024]),
        ((3, "pipe", 4), [240, 256, 512, 1024, 2048, 4096]),
        ((4, "ddp", 1), [60, 64, 128, 256, 512, 1024]),
        ((4, "pipe", 8), [320, 330, 640, 1280, 2560, 5120]),
    ],
}
SCALES = {"small": SMALL, "full": FULL}
EPOCHS, EPOCH_SAMPLES = 10, 50_000  # of time to train: CIFAR-10 as they trained it
COLUMNS = ["devices", "way", "chunks", "batch", "round", "global_batch", "step_ms", "images_per_s", "memory_bytes", "said"]
GROWS = ["rounds"]
# Theirs, 2 nodes with `devices` GPUs of 16 GB each: (way, devices): images/s, GB, minutes, batch; the batch that ran out.
PUBLISHED = {
    ("ddp", 3): "3 GPUs: 64: 260 images/s, 14 GB, 85 min; 128: out of memory",
    ("pipe", 3): "3 GPUs, 4 chunks: 240: 294 images/s, 15 GB, 77 min; 256: out of memory",
    ("ddp", 4): "4 GPUs: 60: 416 images/s, 16 GB, 58 min; 64: out of memory",
    ("pipe", 4): "4 GPUs, 8 chunks: 320: 326 images/s, 15.5 GB, 61 min; 330: out of memory",
}


def add_arguments(parser):
    parser.add_argument("--limit", help="device.memory_limit")
    parser.add_argument("--size", help="model.size of the ViT")
    parser.add_argument("--image-size", type=arguments.positive, metavar="N", help="pixels, of drawn images; CIFAR-10 has 32")
    parser.add_argument("--patch-size", type=arguments.positive, metavar="N", help="model.patch_size")
    parser.add_argument("--ladder", dest="ladders", type=ladder, action="append", metavar="DEVICES:WAY:CHUNKS:BATCH,BATCH,...",
                        help="in place of the scale's; may be repeated: 2:pipe:4:32,64")
    arguments.add_numbers(parser, nodes="replicas of the pipeline, processes of pipe", steps="steps measured a run", warmup="steps before those",
                          rounds="runs of each batch")


def ladder(text):
    devices, way, chunks, batches = text.split(":")
    if way not in ("ddp", "pipe"):
        raise ValueError(way)
    return (int(devices), way, int(chunks)), [int(batch) for batch in batches.split(",")]


def plan(options):
    return [
        one_run(devices, way, chunks, batch, number, options)
        for number in range(1, options.rounds + 1)
        for (devices, way, chunks), batches in options.ladders
        for batch in batches
    ]


def replicas_of(devices, way, options):
    return options.nodes * (devices if way == "ddp" else 1)


def one_run(devices, way, chunks, batch, number, options):
    replicas = replicas_of(devices, way, options)
    steps = options.warmup + options.steps
    images = {"model.patch_size": options.patch_size} | ({} if options.data else {"model.image_size": options.image_size})
    sets = arguments.device_sets(options) | arguments.data_sets(options) | images | {
        "device.memory_limit": options.limit,
        "model.name": "vit",
        "model.size": options.size,
        "data.samples": max(512, batch * replicas),
        "data.limit": max(512, batch * replicas),
        "train.global_batch": batch * replicas,
        "train.steps": steps,
        "train.lr": 0.03,
        "train.eval_every_steps": arguments.ONLY_AT_THE_END,
        "train.eval_batch": replicas,  # an evaluation takes less memory than a step
        "pipeline.stages": 1 if way == "ddp" else devices,
        "pipeline.chunks": chunks,
        "checkpoint.every_minutes": 0,
        "log.tensorboard": False,
    }
    return runs.Planned(
        name=f"round{number}-{devices}-{way}-chunks{chunks}-batch{batch}", kind=f"{way} {devices} {batch}", may_run_out=True,
        title=f"{way} on {options.nodes} x {devices} devices, {chunks} chunks, batch {batch}, round {number}", sets=sets, processes=replicas,
        columns={"devices": devices, "way": way, "chunks": chunks, "batch": batch, "round": number, "global_batch": batch * replicas})


def wanted(planned, rows):
    """False above a batch that ran out of memory; that batch runs once."""
    mine = planned.columns
    return not any(
        row["outcome"] == "out of memory" and row["batch"] <= mine["batch"] and all(row[name] == mine[name] for name in ("devices", "way", "chunks"))
        for row in rows)


def measure(planned, events, options):
    steps = runs.steps_after(planned, events, options.warmup)
    step_ms = statistics.median(step["step_ms"] for step in steps)
    samples = statistics.median(step["samples"] for step in steps)
    peaks = runs.events_named(events, "summary")[-1]["peak_memory_bytes"]
    on_devices = [value for name, value in peaks.items() if ":" in name]
    return {"step_ms": step_ms, "images_per_s": samples / step_ms * 1000, "memory_bytes": max(on_devices, default=None)}


def summarise(rows, options):
    """A row per batch; each rate also relative to the fastest DDP on as many devices."""
    summary = []
    for (devices, way, chunks), batches in options.ladders:
        for batch in batches:
            mine = rows_of_batch(rows, {"devices": devices, "way": way, "chunks": chunks, "batch": batch})
            if mine:
                summary.append(of_one_batch(mine, options))
    for row in done_of(summary):
        base = max((one for one in done_of(summary) if (one["devices"], one["way"]) == (row["devices"], "ddp")), default=None,
                   key=lambda one: one["images_per_s"])
        if base and row is not base:
            row["over_ddp"] = row["images_per_s"] / base["images_per_s"]
            row["overlaps"] = arguments.ranges_overlap(*([one["images_per_s"] for one in rows_of_batch(rows, of)] for of in (row, base)))
    return summary


def rows_of_batch(rows, of):
    return [row for row in rows if all(row[name] == of[name] for name in ("devices", "way", "chunks", "batch"))]


def done_of(summary):
    return [row for row in summary if row["outcome"] == "done"]


def of_one_batch(rows, options):
    """Out of memory if one round was; rates are those of the other rounds."""
    first = next((row for row in rows if row["outcome"] != "done"), rows[0])
    kept = {name: first[name] for name in ("devices", "way", "chunks", "batch", "global_batch", "outcome", "said")}
    kept |= {"rounds": len(rows), "replicas": replicas_of(kept["devices"], kept["way"], options)}
    if kept["outcome"] == "done":
        rates, memory = [row["images_per_s"] for row in rows], [row["memory_bytes"] or 0 for row in rows]
        rate = statistics.median(rates)
        kept |= {"images_per_s": rate, "memory_bytes": max(memory), "minutes": EPOCHS * EPOCH_SAMPLES / rate / 60}
        arguments.add_range(kept, "images_per_s", rates)
        arguments.add_range(kept, "memory_bytes", memory)
    return kept


def markdown(summary, options):
    heads = ["devices", "way", "replicas", "chunks", "batch a replica", "global batch", "rounds", "memory a device, MiB",
             "images/s: median (range)", "over the fastest DDP", "time to train, min", "outcome"]
    cells = [[f"{options.nodes} x {row['devices']}", name_of(row), row["replicas"], row["chunks"], row["batch"],
              row["global_batch"], row["rounds"], *numbers(row), row["outcome"]] for row in summary]
    theirs = [["Pipe+DDP" if way == "pipe" else "DDP", line] for (way, _), line in PUBLISHED.items()]
    said = [f"- {row['said']}" for row in summary if row["said"]]
    return "\n".join([
        "# pipe_vs_ddp\n",
        f"ViT {options.size}, {arguments.data_title(options) if options.data else f'shapes of {options.image_size} pixels'}, {options.device} devices with a "
        f"device.memory_limit of {options.limit}, which limits the cut of a pipeline; medians of {options.steps} steps after {options.warmup}, "
        f"{arguments.count_with_spread(options.rounds, 'round')}. Time to train: {EPOCHS} epochs of {EPOCH_SAMPLES} images at that rate.\n",
        arguments.table(heads, cells),
        f"{arguments.INCONCLUSIVE_NOTE}\n",
        "Published (2 nodes, GPUs of 16 GB, batch a replica):\n",
        arguments.table(["way", "GPUs a node: batch: result"], theirs),
        "What the runs said that ran out of memory:\n", *said, ""])


def name_of(row):
    if row["way"] == "ddp":
        return "DDP"
    return "Pipe+DDP" if row["replicas"] > 1 else "Pipe"


def numbers(row):
    if row["outcome"] != "done":
        return ["", "", "", ""]
    over = f"{row['over_ddp']:.2f}x{arguments.inconclusive_mark(row['overlaps'])}" if "over_ddp" in row else ""
    return [f"{row['memory_bytes'] / 2**20:.0f}", arguments.ranged(row, "images_per_s"), over, f"{row['minutes']:.0f}"]


def figures(rows, options):
    by_name = {}
    for row in summarise(rows, options):
        chunks = f", {row['chunks']} chunks" if row["way"] == "pipe" else ""
        by_name.setdefault(f"{name_of(row)}, {row['devices']} devices{chunks}", []).append(row)
    failed = {name: [row["global_batch"] for row in mine if row["outcome"] != "done"] for name, mine in by_name.items()}
    def panel(label, name, factor=1):
        return {"y": label, "kind": "line", "log": "x", "zero": True, "failed": {"as": "out of memory", "at": failed},
                "series": {of: arguments.points(done_of(mine), "global_batch", name, factor) for of, mine in by_name.items()}}
    return [{"file": "pipe_vs_ddp", "title": "DDP and Pipe+DDP", "note": arguments.note(options.rounds, "round", "medians of rates, most memory"), "x": "global batch",
             "panels": [panel("images/s", "images_per_s"), panel("MiB a device", "memory_bytes", 2**-20)]}]
