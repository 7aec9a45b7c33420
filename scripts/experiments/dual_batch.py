"""Dual batch sizes on a parameter server (Lu et al., COMPSAC 2022): 0, 1, 2 ... all of the workers train with a smaller batch, on as many
samples of an epoch as takes them no longer than --extra-time allows; arms take turns, seed by seed. In virtual time, where a step on a
batch of B takes --sample-s x B + --step-s seconds. Arms whose small batch would be below 40 are left out, and said so.
  --scale small   resnet8 on the built-in shapes, 4 workers, 8 epochs, 3 seeds: about 10 minutes on two cores (default)
  --scale full    resnet18 on CIFAR-10 (--data DIR), the published worker count, costs, batch and 140 epochs, a GPU"""

import fractions
import math

from . import arguments, runs, server_runs

SMALL = {
    "device": "cpu", "seeds": 3, "workers": 4, "epochs": 8, "base_batch": 200, "samples": 4000, "model": "resnet8", "lr": 0.05, "sample_s": "0.001",
    "step_s": "0.03",
}
FULL = {
    "device": "cuda", "seeds": 3, "workers": 5, "epochs": 140, "base_batch": 1000, "samples": 50000, "model": "resnet18", "lr": 0.1,
    "sample_s": "0.00022595", "step_s": "0.006233854698278141",
}
SCALES = {"small": SMALL, "full": FULL}
COLUMNS = ["small_workers", "seed", "small_batch", "large_samples", "small_samples", "total_s", "updates", "top1", "top1_last", "loss", "evaluated_s",
           "evaluated_top1"]
GROWS = ["seeds"]
LEAST_BATCH = 40  # of a plan, as sluice refuses smaller ones
DECAYS = [fractions.Fraction(80, 140), fractions.Fraction(120, 140)]  # of a run, as published; the rate falls to a fifth at each
EVALUATIONS = 10
# CIFAR-100, ResNet-18, RTX 3090, asynchronous: (workers, k) -> [accuracy %, test loss, seconds] by small workers
PUBLISHED = {
    "5 x RTX 3090, batch 1000, k 1.05": ["61.29, 1095 s", "64.50, 1075 s", "66.97, 1057 s", "68.90, 1057 s", "68.71, 1034 s", "68.85, 1013 s"],
    "6 x RTX 3090, batch 1000, k 1.05": ["60.54, 1011 s", "60.20, 1012 s", "66.76, 1068 s", "68.20, 995 s", "67.31, 993 s", "68.08, 1090 s",
                                         "67.85, 993 s"],
    "4 x GTX 1080, batch 500, k 1.05": ["67.81, 1832 s", "67.87, +2.4 %", "70.10, +2.0 %", "70.64, +0.7 %", "70.12, +0.3 %"],
    "8 x GTX 1080, batch 500, k 1.05": ["64.48", "59.94 (batch 35)", "54.02 (batch 83)", "", "68.54", "", "68.78"],
}


def add_arguments(parser):
    parser.add_argument("--model", help="model.name")
    parser.add_argument("--lr", type=float, help="train.lr, the same for every worker, with momentum 0.9; a fifth after 4/7 and after 6/7 of the run")
    parser.add_argument("--extra-time", default="1.05", metavar="K", help="an epoch may take so many times as long as with large batches alone (default: 1.05)")
    parser.add_argument("--merge", choices=["half", "besides", "mean"], default="half", help="ps.merge (default: half)")
    parser.add_argument("--sample-s", metavar="A", help="seconds that a sample takes (ps.sample_s)")
    parser.add_argument("--step-s", metavar="B", help="seconds that a step takes besides (ps.step_s)")
    parser.add_argument("--small", nargs="+", type=int, metavar="N", help="numbers of small workers; 0, what others are compared with, is always there (default: all)")
    arguments.add_numbers(parser, workers="workers of the server", epochs="of each worker", base_batch="a large worker's batch", seeds="runs of each arm",
                          samples="of the training set")


def check(options):
    """Why these options cannot be combined; empty if they can."""
    if options.scale == "full" and not options.data:
        return "--scale full needs --data DIR (CIFAR-10)"
    try:
        costs = [fractions.Fraction(text) for text in (options.extra_time, options.sample_s, options.step_s)]
    except ValueError:
        return "--extra-time, --sample-s and --step-s are numbers, such as 1.05"
    if costs[0] < 1 or costs[1] < 0 or costs[2] <= 0:
        return "--extra-time is at least 1, --sample-s at least 0 and --step-s above 0"
    options.small = sorted({0, *(range(options.workers + 1) if options.small is None else options.small)})
    if options.small[0] < 0 or options.small[-1] > options.workers:
        return f"--small counts workers: 0 to {options.workers}"
    return ""


def batches_of(small, options):
    """{small_batch, large_samples, small_samples} as published, in fractions; the batch is 0 if none fits."""
    extra, a, b = (fractions.Fraction(text) for text in (options.extra_time, options.sample_s, options.step_s))
    even = fractions.Fraction(options.samples, options.workers)
    if small == 0:
        return {"small_batch": None, "large_samples": math.floor(even), "small_samples": None}
    large = math.floor(extra * even)
    share = max(0, options.samples - large * (options.workers - small)) // small
    left = extra * (a + b / options.base_batch) * even / share - a if share else 0  # of a sample, for the steps' fixed cost
    return {"small_batch": math.floor(b / left) if left > 0 else 0, "large_samples": large if small < options.workers else None, "small_samples": share}


def is_allowed(small, options):
    return small == 0 or batches_of(small, options)["small_batch"] >= LEAST_BATCH


def plan(options):
    allowed = [small for small in options.small if is_allowed(small, options)]
    return [one_run(small, seed, options) for seed in range(1, options.seeds + 1) for small in arguments.turned(allowed, seed)]


def one_run(small, seed, options):
    steps = options.epochs * options.workers // (options.workers if options.merge == "mean" else 1)
    sets = arguments.device_sets(options) | arguments.data_sets(options) | {
        "model.name": options.model,
        "model.image_size": 0 if options.data else 16,
        "data.limit" if options.data else "data.samples": options.samples,
        "train.steps": steps,
        "train.optimizer": "momentum",
        "train.lr": options.lr,
        "train.lr_schedule": "step",
        "train.lr_decay": 0.2,
        "train.lr_decay_steps": sorted({max(1, int(steps * decay)) for decay in DECAYS}),
        "train.seed": seed,
        "train.eval_every_steps": max(1, steps // EVALUATIONS),
        "ps.workers": options.workers,
        "ps.worker_batch": options.base_batch,
        "ps.small_workers": small,
        "ps.extra_time": options.extra_time,
        "ps.merge": options.merge,
        "ps.sample_s": options.sample_s,
        "ps.step_s": options.step_s,
        "checkpoint.every_minutes": 0,
        "log.tensorboard": False,
    }
    return runs.Planned(name=f"small{small}-seed{seed}", kind=f"{small} small", title=f"{small} of {options.workers} small, seed {seed}", config="dual_batch",
                        sets=sets, columns={"small_workers": small, "seed": seed, **batches_of(small, options)})


def measure(planned, events, options):
    run = server_runs.ServerRun(events)
    runs.steps_after(planned, events, 0)
    runs.evaluations_of(planned, events)
    times, top1 = run.evaluated("top1")
    return {"total_s": run.times[-1], "updates": len(run.steps), "top1": server_runs.tail_mean(times, top1), "top1_last": top1[-1],
            "loss": run.evaluations[-1]["loss"], "evaluated_s": server_runs.to_cell(times), "evaluated_top1": server_runs.to_cell(top1)}


def summarise(rows, options):
    """A row per number of small workers. Differences and extra time compare runs of the same seed."""
    large = {row["seed"]: row for row in rows if row["small_workers"] == 0}
    return [of_arm(small, [row for row in rows if row["small_workers"] == small], large, options) for small in options.small]


def of_arm(small, mine, large, options):
    row = {"small_workers": small, **batches_of(small, options), "seeds": len(mine)}
    if not mine:
        return row
    for name in ("total_s", "top1", "loss"):
        values = [one[name] for one in mine]
        row[name], row[f"{name}_sd"] = arguments.mean_and_deviation(values)
        arguments.add_range(row, name, values)
    row["extra"], row["extra_sd"] = arguments.mean_and_deviation([100 * (one["total_s"] / large[one["seed"]]["total_s"] - 1) for one in mine])
    row["difference"], row["half_width"] = arguments.mean_and_half_width([one["top1"] - large[one["seed"]]["top1"] for one in mine])
    row["difference_inconclusive"] = arguments.interval_contains_zero(row["difference"], row["half_width"])
    return row


def markdown(summary, options):
    asked = 100 * (float(options.extra_time) - 1)
    cells = [line_of(row, options) for row in summary]
    width = max(len(of) for of in PUBLISHED.values())
    published = [[what, *of, *[""] * (width - len(of))] for what, of in PUBLISHED.items()]
    return "\n".join([
        "# dual_batch\n",
        f"{options.model} on {arguments.data_title(options)}, {options.samples} samples, {options.workers} workers, {options.epochs} epochs, base batch "
        f"{options.base_batch}, momentum, learning rate {options.lr:g} for every worker, merge \"{options.merge}\"; {arguments.count_with_spread(options.seeds, 'seed')}. Virtual time: a step "
        f"takes {options.sample_s} s x batch + {options.step_s} s; extra time asked for: {asked:g} %.\n",
        arguments.table(["small workers", "small batch", "samples of an epoch, large / small", "virtual s", "extra time %", "top-1 %, mean ± sd",
                         "less 0 small, points (95 %)", "test loss"], cells),
        f"Accuracy of a run: mean of its last {server_runs.TAIL} evaluations. {arguments.INCONCLUSIVE_NOTE}\n",
        "Published (CIFAR-100, ResNet-18, one run each; accuracy % and time by number of small workers):\n",
        arguments.table(["", *range(width)], published),
    ])


def line_of(row, options):
    batch = "" if row["small_batch"] is None else row["small_batch"]
    share = " / ".join("-" if row[name] is None else str(row[name]) for name in ("large_samples", "small_samples"))
    if not row["seeds"]:
        return [row["small_workers"], batch or "none", share, f"not run: below {LEAST_BATCH}", "", "", "", ""]
    less = "" if row["small_workers"] == 0 else arguments.plus_minus(row["difference"], row["half_width"], sign="+") + arguments.inconclusive_mark(row["difference_inconclusive"])
    return [row["small_workers"], batch, share, f"{row['total_s']:.1f}", arguments.plus_minus(row["extra"], row["extra_sd"], sign="+"),
            arguments.plus_minus(row["top1"], row["top1_sd"]), less, arguments.plus_minus(row["loss"], row["loss_sd"], digits=3)]


def figures(rows, options):
    summary = [row for row in summarise(rows, options) if row["seeds"]]
    by_small = [{"y": label, "kind": "line", "zero": name == "total_s", "series": {label: arguments.points(summary, "small_workers", name)}}
                for label, name in (("top-1 %", "top1"), ("test loss", "loss"), ("virtual s", "total_s"))]
    curves = {}
    for row in sorted(rows, key=lambda row: row["small_workers"]):
        of_run = [server_runs.from_cell(row["evaluated_s"]), server_runs.from_cell(row["evaluated_top1"])]
        curves.setdefault(f"{row['small_workers']} small", []).append(of_run)
    title = f"{options.workers} workers, extra time {options.extra_time}"
    return [{"file": "dual_batch", "title": title, "note": arguments.note(options.seeds, "seed", "means"), "x": "small workers", "panels": by_small},
            {"file": "accuracy_time", "title": title, "note": arguments.note_of_lines(options.seeds, "seed"), "x": "virtual s",
             "panels": [{"y": "top-1 %", "kind": "curve", "series": curves}]}]
