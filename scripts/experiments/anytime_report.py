"""Tables and figures of anytime: what its rows and the records of its runs say, beside what was published."""

from . import arguments, runs, server_runs

WIDTH = 50  # updates whose training accuracies are averaged, as published
# CIFAR-10, ten workers on EC2 m3.xlarge, RMSProp 0.001, stalls induced: (constant rate, rate x 0.93 every 50 steps)
PUBLISHED_ROWS = [
    ["samples of a worker: mean (range)", "242", "242.8 (22 to 286)", "242", "243.4 (22 to 286)"],
    ["s an update", "10.03", "7.20 (1.39x)", "10.05", "7.25 (1.39x)"],
    ["examples/s", "241", "337 (1.40x)", "241", "336 (1.39x)"],
    ["s to accuracy .50", "3973", "2889 (1.38x)", "3484", "2749 (1.27x)"],
    ["s to accuracy .60", "5255", "3504 (1.50x)", "4435", "3539 (1.25x)"],
    ["s to accuracy .65", "6968", "4891 (1.42x)", "5309", "4689 (1.13x)"],
    ["test accuracy at the end (100 images, mean of 200)", ".677", ".687", ".718", ".669"],
]


def width_of(arm, options):
    """Updates with about equal samples in each arm: an update of asp is one push."""
    return WIDTH * (options.workers if arm == "asp" else 1)


def summarise(rows, options):
    """A row per arm, then a row per threshold. Factors compare runs of the same seed."""
    by_arm = {arm: {row["seed"]: row for row in rows if row["arm"] == arm} for arm in options.arms}
    base = by_arm[options.arms[0]]
    ends = {seed: min(mine[seed]["total_s"] for mine in by_arm.values()) for seed in base}
    arms = [arm_row(arm, mine, base, ends) for arm, mine in by_arm.items()]
    return arms + [threshold_row(index, by_arm, options) for index in range(len(options.thresholds))]


def arm_row(arm, mine, base, ends):
    row = {"arm": arm, "seeds": len(mine), "updates": next(iter(mine.values()))["updates"]}
    measured = {
        "update_s": [update_s(one) for one in mine.values()],
        "updates_x": [update_s(base[seed]) / update_s(one) for seed, one in mine.items()],
        "examples_per_s": [examples_per_s(one) for one in mine.values()],
        "examples_x": [examples_per_s(one) / examples_per_s(base[seed]) for seed, one in mine.items()],
        "samples_mean": [one["samples_mean"] for one in mine.values()],
        "staleness_mean": [one["staleness_mean"] for one in mine.values()],
        "top1": [one["top1"] for one in mine.values()],
        "top1_then": [value for seed, one in mine.items() if (value := top1_at(one, ends[seed])) is not None],
    }
    for name, values in measured.items():
        row[name], row[f"{name}_sd"] = arguments.mean_and_deviation(values)
        row[f"{name}_inconclusive"] = name.endswith("_x") and mine != base and arguments.range_holds(values, 1)
    row["samples_min"] = min(one["samples_min"] for one in mine.values())
    row["samples_max"] = max(one["samples_max"] for one in mine.values())
    row["staleness_max"] = max(one["staleness_max"] for one in mine.values())
    return row


def update_s(row):
    return row["total_s"] / row["updates"]


def examples_per_s(row):
    return row["samples_mean"] * row["pushes"] / row["total_s"]


def top1_at(row, time):
    return server_runs.tail_mean(server_runs.from_cell(row["evaluated_s"]), server_runs.from_cell(row["evaluated_top1"]), time)


def threshold_row(index, by_arm, options):
    """When each arm reached the threshold, and how much sooner than the first arm."""
    reached = {arm: {seed: server_runs.from_cell(row["reached_s"])[index] for seed, row in mine.items()} for arm, mine in by_arm.items()}
    row = {"threshold": options.thresholds[index]}
    first = reached[options.arms[0]]
    for arm, times in reached.items():
        known = [time for time in times.values() if time is not None]
        row[f"{arm}_s"], row[f"{arm}_s_sd"] = arguments.mean_and_deviation(known)
        row[f"{arm}_reached"] = len(known)
        ratios = [first[seed] / time for seed, time in times.items() if time is not None and first[seed] is not None]
        row[f"{arm}_x"], row[f"{arm}_x_sd"] = arguments.mean_and_deviation(ratios)
        row[f"{arm}_x_inconclusive"] = arguments.range_holds(ratios, 1)
    return row


def markdown(summary, options):
    arms = [row for row in summary if "arm" in row]
    base = options.arms[0]
    return "\n".join([
        "# anytime\n",
        heading(options),
        arm_table(arms, base),
        f"Time to a training accuracy (mean of the last {WIDTH} updates), seconds: mean ± deviation; x: how much sooner than {base}, of the same seed:\n",
        threshold_table([row for row in summary if "threshold" in row], options),
        f"{arguments.INCONCLUSIVE_NOTE}\n",
        "Published (CIFAR-10, ten workers on EC2, RMSProp, the same stalls):\n",
        arguments.table(["", "fmb, constant rate", "amb, constant rate", "fmb, x 0.93 every 50 steps", "amb, x 0.93 every 50 steps"], PUBLISHED_ROWS),
    ])


def heading(options):
    where = "processes" if options.real else "virtual time"
    decay = f", x {options.decay_rate:g} every {options.decay_steps} updates" if options.decay_rate < 1 else ""
    return (f"{options.model} on {arguments.data_title(options)}, {options.workers} workers ({where}), stalls: {options.induce}; fixed batch {options.fmb_batch}, "
            f"anytime at most {options.amb_batch} in {options.partitions} slices; {options.optimizer}, learning rate {options.lr:g}{decay}; "
            f"{arguments.count_with_spread(options.seeds, 'seed')}, arms in turns; mean ± deviation.\n")


def arm_table(rows, base):
    heads = ["", "updates", "s an update", f"updates/s over {base}", f"examples/s over {base}", "samples of a push: mean (range)", "staleness: mean (most)",
             f"test top-1 % at the end (last {server_runs.TAIL} evaluations)", "when the first arm ended"]
    cells = [[
        row["arm"], row["updates"], shown(row, "update_s", 3),
        *("" if row["arm"] == base else times_text(row, name) for name in ("updates_x", "examples_x")),
        f"{row['samples_mean']:.1f} ({row['samples_min']} to {row['samples_max']})", f"{row['staleness_mean']:.1f} ({row['staleness_max']})",
        shown(row, "top1"), shown(row, "top1_then")] for row in rows]
    return arguments.table(heads, cells)


def shown(row, name, digits=2):
    return arguments.plus_minus(row[name], row[f"{name}_sd"], digits)


def times_text(row, name):
    return f"{shown(row, name)}x{arguments.inconclusive_mark(row[f'{name}_inconclusive'])}"


def threshold_table(rows, options):
    base, *others = options.arms
    heads = ["accuracy %", base] + [head for arm in others for head in (arm, "x")]
    cells = [[f"{row['threshold']:g}", time_text(row, base, options)]
             + [cell for arm in others for cell in (time_text(row, arm, options), times_text(row, f"{arm}_x") if row[f"{arm}_x"] else "")] for row in rows]
    return arguments.table(heads, cells)


def time_text(row, arm, options):
    if not row[f"{arm}_reached"]:
        return "never"
    some = f" ({row[f'{arm}_reached']} of {options.seeds} seeds)" if row[f"{arm}_reached"] < options.seeds else ""
    return shown(row, f"{arm}_s", 1) + some


def figures(rows, options):
    """Curves have a line per seed; histograms are over all seeds, with their range."""
    trained = [row for row in rows if row["arm"] in options.arms]
    of_runs = {row["run"]: server_runs.ServerRun(runs.events_of(options.out / row["run"])) for row in trained}
    if not all(run.steps for run in of_runs.values()):  # their folders are gone
        return []
    curves = {arm: [of_runs[row["run"]] for row in trained if row["arm"] == arm] for arm in options.arms}
    seconds = "seconds" if options.real else "virtual seconds"
    return curve_figures(curves, seconds, options) + histogram_figures(curves, seconds, options)


def curve_figures(curves, seconds, options):
    note = arguments.note_of_lines(options.seeds, "seed")

    def panel(label, of_curve, zero=False):
        return {"y": label, "kind": "curve", "zero": zero, "series": {arm: [of_curve(arm, run) for run in of_arm] for arm, of_arm in curves.items()}}

    def smooth(name, axis):
        return lambda arm, run: [axis(run), server_runs.moving_mean(run.of_steps(name), width_of(arm, options))]

    result = []
    for file, title, x, axis in (("accuracy_time", "accuracy against time", seconds, lambda run: run.times),
                                 ("accuracy_step", "accuracy against updates", "updates", lambda run: run.of_steps("step"))):
        panels = [panel("training accuracy %", smooth("top1", axis)), panel("training loss", smooth("loss", axis))]
        result.append({"file": file, "title": f"{title} (means of {WIDTH} updates)", "note": note, "x": x, "panels": panels})
    result[0]["panels"].append(panel("test top-1 %", lambda _, run: run.evaluated("top1")))
    progress = [panel("updates", lambda _, run: [run.times, run.of_steps("step")], zero=True),
                panel("examples", lambda _, run: [run.times, run.examples_so_far()], zero=True)]
    return result + [{"file": "progress", "title": "updates and examples against time", "note": note, "x": seconds, "panels": progress}]


def histogram_figures(curves, seconds, options):
    note = arguments.note(options.seeds, "seed", "all pushes")

    def figure(file, title, x, name):
        series = server_runs.histogram({arm: [run.of_pushes(name) for run in of_arm] for arm, of_arm in curves.items()})
        return {"file": file, "title": title, "note": note, "x": x, "panels": [{"y": "% of the pushes", "kind": "histogram", "series": series}]}
    return [
        figure("compute_time", "time that a worker computes for a push, stalls included", seconds, "compute_s"),
        figure("batch", "batch of a push", "samples", "examples"),
        figure("staleness", "staleness of a push", "updates", "staleness"),
    ]
