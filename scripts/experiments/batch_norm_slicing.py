"""What slices do to a model with batch-norm, which normalises a slice by its own mean and deviation: the same batch in 1, 2, 4, ...
micro-batches on one device, seeds in turns. No server is needed: workers of one normalise in the same way.
  micro      running statistics take in each slice (as on a parameter server)
  deferred   they take in the whole batch once (pipeline.batch_norm)
  --scale small   resnet8 on the built-in shapes, batch 64, 300 steps, 3 seeds: about 5 minutes on two cores (default)
  --scale full    resnet8 on CIFAR-10 (--data DIR), batch 256, 4000 steps, 5 seeds, a GPU"""

import statistics

from . import arguments, runs, server_runs

SMALL = {
    "device": "cpu", "seeds": 3, "steps": 300, "batch": 64, "partitions": [1, 2, 4, 8, 16, 32, 64], "lr": 0.02, "model": "resnet8", "evaluations": 12,
    "modes": ["micro"],
}
FULL = {
    "device": "cuda", "seeds": 5, "steps": 4000, "batch": 256, "partitions": [1, 2, 8, 16, 32, 64, 128, 256], "lr": 0.05, "model": "resnet8",
    "evaluations": 40, "modes": ["micro", "deferred"],
}
SCALES = {"small": SMALL, "full": FULL}
COLUMNS = ["mode", "partitions", "seed", "top1", "top1_last", "train_top1", "evaluated_top1"]
GROWS = ["seeds"]
# CIFAR-10, batch 256, momentum, means of the last 100; ImageNet of 32 pixels, batch 128
PUBLISHED = [
    ("CIFAR-10", 256, {1: ".538", 2: ".543", 8: ".517", 16: ".501", 32: ".425", 64: ".302", 128: ".222", 256: ".086"}),
    ("ImageNet, 32 pixels", 128, {4: ".036 to .043", 16: ".027", 64: ".006", 128: ".001"}),
]


def add_arguments(parser):
    parser.add_argument("--model", help="model.name, one with batch-norm (default: resnet8)")
    parser.add_argument("--modes", nargs="+", choices=["micro", "deferred"], help="pipeline.batch_norm (default: micro; of scale full both)")
    parser.add_argument("--partitions", nargs="+", type=arguments.positive, metavar="N", help="numbers of slices; 1, what others are compared with, is always there")
    parser.add_argument("--lr", type=float, help="train.lr at the beginning, down to 0 by a cosine; with momentum")
    parser.add_argument("--drop", type=arguments.not_negative, default=2.0, metavar="POINTS", help="of top-1: more than that is broken (default: 2)")
    arguments.add_numbers(parser, batch="train.global_batch", steps="steps of a run", seeds="runs of each number of slices",
                          evaluations="on the test set, over a run")


def check(options):
    options.partitions = sorted({1, *options.partitions})
    if options.scale == "full" and not options.data:
        return "--scale full needs --data DIR (CIFAR-10)"
    if options.partitions[-1] > options.batch:
        return f"--partitions {options.partitions[-1]} is more than --batch {options.batch}: a slice has one sample at least"
    return ""


def plan(options):
    return [one_run(mode, partitions, seed, options) for seed in range(1, options.seeds + 1) for mode, partitions in arguments.turned(ways(options), seed)]


def ways(options):
    return [(mode, partitions) for mode in options.modes for partitions in options.partitions if partitions > 1 or mode == options.modes[0]]


def one_run(mode, partitions, seed, options):
    shown = {} if options.data else {"model.image_size": 16, "data.samples": 4000}
    sets = arguments.device_sets(options) | arguments.data_sets(options) | shown | {
        "model.name": options.model,
        "data.crop_padding": 0,
        "data.flip": False,
        "train.global_batch": options.batch,
        "train.steps": options.steps,
        "train.optimizer": "momentum",
        "train.lr": options.lr,
        "train.lr_schedule": "cosine",  # so that accuracies at the end are steady
        "train.seed": seed,
        "train.eval_every_steps": max(1, options.steps // options.evaluations),
        "pipeline.stages": 1,
        "pipeline.chunks": partitions,
        "pipeline.batch_norm": mode,
        "checkpoint.every_minutes": 0,
        "log.tensorboard": False,
    }
    return runs.Planned(name=f"{mode}-{partitions}-seed{seed}", kind=f"{mode} {partitions}", title=f"{mode}, {partitions} slices, seed {seed}", sets=sets,
                        columns={"mode": mode, "partitions": partitions, "seed": seed})


def measure(planned, events, options):
    evaluations = runs.evaluations_of(planned, events)
    top1 = [event["top1"] for event in evaluations]
    trained = [step["top1"] for step in runs.steps_after(planned, events, 0)]
    tail = server_runs.tail_mean([event["step"] for event in evaluations], top1)
    return {"top1": tail, "top1_last": top1[-1], "train_top1": statistics.fmean(trained[-len(trained) // 10 :]),
            "evaluated_top1": server_runs.to_cell(top1)}


def summarise(rows, options):
    """A row per number of slices and mode; then, for each mode, where it breaks."""
    whole = {row["seed"]: row["top1"] for row in rows if row["partitions"] == 1}
    summary = []
    for mode in options.modes:
        of_mode = [of_slices(mode, partitions, rows, whole, options) for partitions in options.partitions]
        summary += of_mode + [{"mode": mode, "breaks_at": breaks_at(of_mode, options.drop)}]
    return summary


def of_slices(mode, partitions, rows, whole, options):
    """Differences compare runs of the same seed."""
    mine = [row for row in rows if row["partitions"] == partitions and (row["mode"] == mode or partitions == 1)]
    values = [row["top1"] for row in mine]
    top1, top1_sd = arguments.mean_and_deviation(values)
    difference, half_width = arguments.mean_and_half_width([row["top1"] - whole[row["seed"]] for row in mine])
    return {"mode": mode, "partitions": partitions, "slice": options.batch / partitions, "top1": top1, "top1_sd": top1_sd,
            "top1_min": min(values), "top1_max": max(values), "difference_inconclusive": arguments.interval_contains_zero(difference, half_width),
            "train_top1": statistics.fmean(row["train_top1"] for row in mine), "difference": difference, "half_width": half_width}


def breaks_at(rows, drop):
    """The fewest slices from which on all numbers lose more than `drop` points, significantly if there are several seeds; or None."""
    result = None
    for row in reversed(rows):
        if not (row["difference"] < -drop and row["difference"] + (row["half_width"] or 0) < 0):
            break
        result = row["partitions"]
    return result


def markdown(summary, options):
    lines = ["# batch_norm_slicing\n",
             f"{options.model} on {arguments.data_title(options)}, batch {options.batch}, {options.steps} steps, momentum, learning rate {options.lr:g} (cosine); "
             f"{arguments.count_with_spread(options.seeds, 'seed')}. Accuracy of a run: mean of its last {server_runs.TAIL} evaluations.\n"]
    for mode in options.modes:
        lines += of_one_mode([row for row in summary if row["mode"] == mode], options)
    cells = [[what, batch, partitions, f"{batch / partitions:g}", top1] for what, batch, of in PUBLISHED for partitions, top1 in of.items()]
    return "\n".join([*lines, "Published (momentum; mean of the last 100 test accuracies; statistics of the master's batches only):\n",
                      arguments.table(["", "batch", "slices", "samples of a slice", "accuracy"], cells)])


def of_one_mode(summary, options):
    rows, end = [row for row in summary if "partitions" in row], next(row for row in summary if "breaks_at" in row)
    cells = [[row["partitions"], f"{row['slice']:g}", arguments.plus_minus(row["top1"], row["top1_sd"]),
              less_text(row), f"{row['train_top1']:.1f}"] for row in rows]
    said = (f"Breaks at {end['breaks_at']} slices, of {options.batch / end['breaks_at']:g} samples: " if end["breaks_at"] else "Breaks nowhere: ")
    return [
        f"## pipeline.batch_norm = {end['mode']}\n",
        arguments.table(["slices", "samples of a slice", "top-1 %, mean ± sd", "less the whole batch's, points (95 %)", "training top-1 %, last tenth"], cells),
        f"{said}more than {options.drop:g} points below the whole batch. {arguments.INCONCLUSIVE_NOTE}\n",
    ]


def less_text(row):
    if row["partitions"] == 1:
        return ""
    return arguments.plus_minus(row["difference"], row["half_width"], sign="+") + arguments.inconclusive_mark(row["difference_inconclusive"])


def figures(rows, options):
    summary = [row for row in summarise(rows, options) if "partitions" in row]
    series = {mode: arguments.points([row for row in summary if row["mode"] == mode], "slice", "top1") for mode in options.modes}
    return [{"file": "batch_norm_slicing", "title": f"{options.model}, batch {options.batch} in slices", "note": arguments.note(options.seeds, "seed", "means"),
             "x": "samples of a slice", "panels": [{"y": "top-1 %", "kind": "line", "log": "x", "series": series}]}]
