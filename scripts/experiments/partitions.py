"""What it costs to compute a batch in slices, as anytime workers do: training on one device with 1, 2, 4, ... micro-batches of
the same batch, for a fully connected model (mlp) and a convolutional one (toy_cnn). No server is needed. Rounds take turns.
The time is that of the slices: a step without loading and optimizer, of all steps the fastest, because what else runs on the
machine can only add.
  --scale small   one CPU thread, batches of 1024 (mlp) and 256 (toy_cnn) drawn images: about 5 minutes (default)
  --scale full    a GPU, batches of 16384 and 1024"""

import argparse
import statistics

from . import arguments, runs

MODELS = {"mlp": "fully connected", "toy_cnn": "convolutional"}
SMALL = {"device": "cpu", "steps": 8, "warmup": 3, "rounds": 3, "batches": {"mlp": 1024, "toy_cnn": 256}}
FULL = {"device": "cuda", "steps": 30, "warmup": 10, "rounds": 5, "batches": {"mlp": 16384, "toy_cnn": 1024}}
SCALES = {"small": SMALL, "full": FULL}
COLUMNS = ["model", "batch", "partitions", "round", "steps", "fastest_ms", "median_ms"]
GROWS = ["rounds"]
# EC2 m3.xlarge and others: (what, batch, {partitions: seconds a step})
PUBLISHED = [
    ("conv10, CIFAR-10", 256, {1: 5.815, 8: 5.891, 16: 5.984, 32: 6.141, 64: 6.522, 128: 6.952}),
    ("conv10, CIFAR-10", 512, {1: 11.557, 16: 11.579, 32: 11.729, 64: 12.047, 256: 13.688}),
    ("conv10, CIFAR-10", 1024, {1: 22.88, 512: 27.27}),
    ("fully connected, MNIST", 16384, {1: 3.18, 16: 6.93, 1024: 78.8, 8192: 381.7}),
    ("AlexNet, p2.xlarge", 2048, {1: 12.06, 16: 5.58}),
]


def add_arguments(parser):
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="default: both")
    parser.add_argument("--batches", type=batch_of_model, action="append", metavar="MODEL=N", help="samples of a step; may be repeated")
    parser.add_argument("--most", type=arguments.not_negative, default=3.0, metavar="PERCENT", help="what slices may cost (default: 3)")
    arguments.add_numbers(parser, steps="steps measured a run", warmup="steps before those", rounds="runs of each number of slices")


def batch_of_model(text):
    model, _, batch = text.partition("=")
    if model not in MODELS:
        raise argparse.ArgumentTypeError(f"{model}: choose from {', '.join(MODELS)}")
    return model, arguments.positive(batch)


def defaults(options):
    scale = SCALES[options.scale]
    options.batches = scale["batches"] | dict(options.batches or [])
    return scale


def plan(options):
    return [
        one_run(model, slices, number, options)
        for number in range(1, options.rounds + 1)
        for model in options.models
        for slices in slices_of(options.batches[model])
    ]


def slices_of(batch):
    """1, 2, 4, ... slices of at least two samples."""
    result = [1]
    while batch // (2 * result[-1]) >= 2:
        result.append(2 * result[-1])
    return result


def one_run(model, slices, number, options):
    batch = options.batches[model]
    sets = arguments.device_sets(options) | arguments.data_sets(options) | {
        "model.name": model,
        "data.samples": 2 * batch,
        "data.limit": 2 * batch,
        "data.crop_padding": 0,
        "data.flip": False,
        "train.global_batch": batch,
        "train.steps": options.warmup + options.steps,
        "train.lr": 0.01,
        "train.lr_schedule": "constant",
        "train.eval_every_steps": arguments.ONLY_AT_THE_END,
        "pipeline.stages": 1,
        "pipeline.chunks": slices,
        "checkpoint.every_minutes": 0,
        "log.tensorboard": False,
    }
    return runs.Planned(name=f"round{number}-{model}-{slices}", kind=f"{model} {slices}", title=f"{model}, {slices} slices, round {number}", sets=sets,
                        columns={"model": model, "batch": batch, "partitions": slices, "round": number})


def measure(planned, events, options):
    steps = runs.steps_after(planned, events, options.warmup)
    times = [step["step_ms"] - step["load_ms"] - step["optimizer_ms"] for step in steps]
    return {"steps": len(steps), "fastest_ms": min(times), "median_ms": statistics.median(times)}


def summarise(rows, options):
    """A row per model and number of slices; then, for each model, the most slices that are cheap enough, and a fitted line."""
    return [row for model in options.models for row in of_model(model, [row for row in rows if row["model"] == model], options)]


def of_model(model, rows, options):
    summary = [of_slices(partitions, rows) for partitions in sorted({row["partitions"] for row in rows})]
    cheap = max(row["partitions"] for row in summary if row["cost"] <= options.most / 100)
    a, b = line([(row["partitions"], row["fastest_ms"]) for row in summary])
    batch = rows[0]["batch"]
    sample_ms = b / batch
    # The smallest slice n with a / (n sample_ms) <= most.
    smallest = a / (sample_ms * options.most / 100) if sample_ms > 0 and options.most > 0 else None
    return summary + [{"model": model, "of_batch": batch, "most_partitions": cheap, "samples_of_slice": batch / cheap, "slice_ms": a, "sample_ms": sample_ms,
                       "smallest_by_line": smallest}]


def of_slices(partitions, rows):
    """Costs relative to the whole batch: of the fastest step, and of medians in the same round."""
    mine, whole = ([row for row in rows if row["partitions"] == number] for number in (partitions, 1))
    fastest_ms, fastest_whole = (min(row["fastest_ms"] for row in some) for some in (mine, whole))
    per_sample = [1000 * row["fastest_ms"] / mine[0]["batch"] for row in mine]
    medians = {row["round"]: row["median_ms"] for row in whole}
    batch = mine[0]["batch"]
    return {"model": mine[0]["model"], "batch": batch, "partitions": partitions, "slice": batch / partitions, "fastest_ms": fastest_ms,
            "us_per_sample": min(per_sample), "us_per_sample_min": min(per_sample), "us_per_sample_max": max(per_sample),
            "overlaps": partitions > 1 and arguments.ranges_overlap(*([row["fastest_ms"] for row in some] for some in (mine, whole))), "cost": fastest_ms / fastest_whole - 1,
            "cost_of_medians": statistics.median(row["median_ms"] / medians[row["round"]] - 1 for row in mine)}


def line(points):
    """a, b >= 0 of y = a x + b with the least squared relative deviations: milliseconds per slice, and of all samples."""
    if len(points) < 2:
        return 0.0, points[0][1]
    weights = [1 / y**2 for _, y in points]
    x_mean = sum(w * x for w, (x, _) in zip(weights, points)) / sum(weights)
    y_mean = sum(w * y for w, (_, y) in zip(weights, points)) / sum(weights)
    spread = sum(w * (x - x_mean) ** 2 for w, (x, _) in zip(weights, points))
    a = sum(w * (x - x_mean) * (y - y_mean) for w, (x, y) in zip(weights, points)) / spread
    if a < 0:
        return 0.0, y_mean
    b = y_mean - a * x_mean
    if b >= 0:
        return a, b
    return sum(w * x * y for w, (x, y) in zip(weights, points)) / sum(w * x * x for w, (x, _) in zip(weights, points)), 0.0


def markdown(summary, options):
    lines = ["# partitions\n",
             f"{arguments.data_title(options)}, {options.device}; {options.steps} steps after {options.warmup}, {arguments.count_with_spread(options.rounds, 'round')}. Time of a "
             "step without loading and optimizer, the fastest of all rounds; far apart from the cost of the medians, the machine was busy.\n"]
    for model in options.models:
        lines += of_one_model([row for row in summary if row["model"] == model], options)
    cells = [[what, batch, partitions, f"{batch / partitions:g}", f"{seconds:g}", f"{100 * (seconds / of[1] - 1):+.1f} %"]
             for what, batch, of in PUBLISHED for partitions, seconds in of.items()]
    return "\n".join([*lines, "Published (seconds a step):\n", arguments.table(["", "batch", "slices", "samples of a slice", "s", "cost"], cells)])


def of_one_model(summary, options):
    rows, (end,) = [row for row in summary if "partitions" in row], [row for row in summary if "most_partitions" in row]
    cells = [[row["partitions"], f"{row['slice']:g}", f"{row['fastest_ms']:.2f}", f"{row['us_per_sample']:.1f}",
              *(cost_text(row, name) for name in ("cost", "cost_of_medians"))] for row in rows]
    by_line = "" if end["smallest_by_line"] is None else f"; by the line a slice costs at most that from {end['smallest_by_line']:.0f} samples on"
    return [
        f"## {end['model']}: {MODELS[end['model']]}, batch {end['of_batch']}\n",
        arguments.table(["slices", "samples of a slice", "ms", "µs a sample", "cost", "of the medians"], cells),
        f"The most slices that cost at most {options.most:g} %: {end['most_partitions']}, of {end['samples_of_slice']:g} samples. "
        f"Line through all: {end['slice_ms']:.4g} ms a slice + {1000 * end['sample_ms']:.4g} µs a sample (ps.step_s, ps.sample_s){by_line}. {arguments.INCONCLUSIVE_NOTE}\n",
    ]


def cost_text(row, name):
    if row["partitions"] == 1:
        return ""
    return f"{100 * row[name]:+.1f} %{arguments.inconclusive_mark(name == 'cost' and row['overlaps'])}"


def figures(rows, options):
    series = {}
    for row in summarise(rows, options):
        if "partitions" in row:
            series.setdefault(f"{row['model']}, batch {row['batch']}", []).append(row)
    return [{"file": "partitions", "title": "time of a sample against slices", "note": arguments.note(options.rounds, "round", "the fastest"), "x": "slices",
             "panels": [{"y": "µs a sample", "kind": "line", "log": "xy",
                         "series": {name: arguments.points(of, "partitions", "us_per_sample") for name, of in series.items()}}]}]
