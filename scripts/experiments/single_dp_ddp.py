"""The same model, data and global batch three ways that take turns:
  single   one device
  dp       replicas in one process, one a device
  ddp      processes on this machine, one device each, which meet on 127.0.0.1
The time of a step is the median of step_ms in metrics.jsonl after the warm-up, over all rounds.
  --scale small   2 CPU devices of one thread each, vgg16, batch 64: minutes (default)
  --scale full    4 GPUs, vgg16, batch 256, 4 loader workers
The whole published table: --model vgg16 (and resnet50), --batch 128, 256 and 1024, --workers 4 and 16, a call each. With
--epochs N a run trains so long and evaluates, so that the table has the accuracy of each way beside the batch.

The data are synthetic images of CIFAR-10's shape, or from --data DIR: CIFAR-10, or a folder of pictures (train/CLASS/...),
of which --image-size N is taken."""

import statistics

from . import arguments, runs

SCALES = {
    "small": {"device": "cpu", "devices": 2, "batch": 64, "steps": 6, "warmup": 2, "rounds": 2, "workers": 1},
    "full": {"device": "cuda", "devices": 4, "batch": 256, "steps": 100, "warmup": 20, "rounds": 5, "workers": 4},
}
WAYS = {"single": "one device", "dp": "replicas in one process", "ddp": "processes"}
COLUMNS = ["way", "round", "steps", "step_s", "step_ms", "samples", "top1"]
GROWS = ["ways", "rounds"]


def add_arguments(parser):
    parser.add_argument("--model", default="vgg16", help="model.name (default: vgg16)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="the first is what the others are compared with")
    arguments.add_numbers(parser, devices="devices of dp and ddp", batch="train.global_batch", steps="steps measured a run",
                          rounds="runs of each way", workers="data.workers", warmup="steps before those",
                          epochs="train.epochs, in place of --steps, and evaluate", image_size="model.image_size")


def plan(options):
    return [
        runs.Planned(
            name=f"round{number}-{way}", kind=way, title=f"{way} in round {number}", sets=sets_of(way, options),
            columns={"way": way, "round": number}, processes=options.devices if way == "ddp" else 1)
        for number in range(1, options.rounds + 1)
        for way in options.ways
    ]


def sets_of(way, options):
    steps = options.warmup + options.steps
    length = {"train.epochs": options.epochs} if options.epochs else {
        "data.samples": options.batch * steps, "data.limit": options.batch * steps, "train.steps": steps,
        "train.eval_every_steps": arguments.ONLY_AT_THE_END}
    size = {"model.image_size": options.image_size} if options.image_size else {}
    if size and arguments.data_sets(options)["data.name"] == "image_folder":
        size |= arguments.folder_views(options.image_size)
    return length | size | arguments.device_sets(options) | arguments.data_sets(options) | {
        "model.name": options.model,
        "data.workers": options.workers,
        "train.global_batch": options.batch,
        "train.lr": 0.01,
        "pipeline.stages": 1,
        "pipeline.chunks": 1,
        "replicas.local": options.devices if way == "dp" else 1,
        "log.tensorboard": False,
    }


def measure(planned, events, options):
    steps = runs.steps_after(planned, events, options.warmup)
    times = [step["step_ms"] for step in steps]
    top1 = runs.evaluations_of(planned, events)[-1]["top1"] if options.epochs else None
    return {"top1": top1, "steps": len(steps), "step_s": statistics.median(times) / 1000, "step_ms": " ".join(f"{time:.9g}" for time in times),
            "samples": statistics.median(step["samples"] for step in steps)}


def summarise(rows, options):
    by_way = {way: [row for row in rows if row["way"] == way] for way in options.ways}
    summary = [of_one_way(way, mine, options) for way, mine in by_way.items()]
    arguments.add_speed_up(summary, rows, "step_s")
    return summary


def of_one_way(way, rounds, options):
    medians = [row["step_s"] for row in rounds]
    step_s = statistics.median(float(time) for row in rounds for time in str(row["step_ms"]).split()) / 1000
    top1 = [row["top1"] for row in rounds if row["top1"] is not None]
    return {
        "way": way,
        "processes": options.devices if way == "ddp" else 1,
        "devices": 1 if way == "single" else options.devices,
        "step_s": step_s,
        "step_s_min": min(medians),
        "step_s_max": max(medians),
        "images_per_s": statistics.median(row["samples"] for row in rounds) / step_s,
        "top1": arguments.median_or_none(top1),
        "top1_min": min(top1, default=None),
        "top1_max": max(top1, default=None),
    }


def heading(options):
    length = arguments.several(*((options.epochs, "epoch") if options.epochs else (options.steps, "step")))
    return (f"{options.model}, {arguments.data_sets(options)['data.name']}, global batch {options.batch}, "
            f"{options.device}, {arguments.several(options.workers, 'loader worker')}; {length} after {options.warmup} of warm-up in {arguments.count_with_spread(options.rounds, 'round')}")


def quotients(summary):
    return [f"{summary[0]['step_s']:.3f} s / {row['step_s']:.3f} s per step = {speed_up(row)} ({row['way']})" for row in summary[1:]]


def speed_up(row):
    return f"{row['speed_up']:.2f}x{arguments.inconclusive_mark(row['overlaps'])}"


def console(summary, options):
    lines = [heading(options), f"{'way':8} {'':24} {'devices':>7} {'s / step':>9} {'of rounds':>15} {'images/s':>9} {'speed-up':>9}"]
    for row in summary:
        spread = f"{row['step_s_min']:.3f}-{row['step_s_max']:.3f}"
        lines.append(f"{row['way']:8} {WAYS[row['way']]:24} {row['devices']:7} {row['step_s']:9.3f} {spread:>15} "
                     f"{row['images_per_s']:9.1f} {row['speed_up']:8.2f}x{arguments.inconclusive_mark(row['overlaps'])}")
    notes = [arguments.INCONCLUSIVE_NOTE] if any(row["overlaps"] for row in summary) else []
    return "\n".join(lines + quotients(summary) + notes) + "\n"


def markdown(summary, options):
    cells = [[row["way"], WAYS[row["way"]], row["devices"], f"{row['step_s']:.3f}", f"{row['step_s_min']:.3f}-{row['step_s_max']:.3f}",
              f"{row['images_per_s']:.1f}", speed_up(row), arguments.plus_minus(row["top1"], None)] for row in summary]
    table = arguments.table(["way", "", "devices", "s / step", "of rounds", "images/s", "speed-up", "top-1 %"], cells)
    theirs = "Theirs (PyTorch-Learning, one device against 4 of DDP): 0.742 s / 0.378 s per step = 1.96x"
    return f"# single_dp_ddp\n\n{heading(options)}.\n\n{table}\n" + "\n\n".join([*quotients(summary), theirs, arguments.INCONCLUSIVE_NOTE + "\n"])


def figures(rows, options):
    summary = summarise(rows, options)
    panels = [{"y": "s / step", "kind": "bar", "series": {"": arguments.points(summary, "way", "step_s")}}]
    if options.epochs:
        panels.append({"y": "top-1 %", "kind": "bar", "series": {"": arguments.points(summary, "way", "top1")}})
    return [{"file": "single_dp_ddp", "title": f"{options.model}, global batch {options.batch}", "note": arguments.note(options.rounds, "round", "medians"),
             "x": "", "panels": panels}]
