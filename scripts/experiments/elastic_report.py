"""Tables and figures of elastic_freeze: what its rows and the metrics of its runs say, beside what PipeTransformer published."""

import itertools
import statistics

from . import arguments, runs

# Of the paper's breakdown (ViT, ImageNet, 2 x 8 GPUs): throughput over Pipe+DDP without freezing.
PUBLISHED = {
    "none": ("No freeze", 1.0),
    "freeze": ("Freeze only", 0.95),
    "elastic": ("+ AutoPipe + AutoDP", 2.27),
    "cache": ("+ AutoPipe + AutoCache", 1.26),
    "all": ("all", 2.83),
}
PUBLISHED_FROZEN = {64: (471, 8.6, 200, 1.569), 320: (2313, 31, 240, 0.376)}  # forward and backward ms, images/s, syncs/s
HEADLINE = """Published, PipeTransformer over Pipe+DDP at about equal accuracy (2 machines with 8 GPUs each): 2.83x on ImageNet (82.18 against
80.83 %), 2.44x on CIFAR-100 (91.33 against 91.21 %), 2.10x on SQuAD (90.69 against 90.71). Their accuracies for alpha = 1/3 on CIFAR-100:
90.78 with freezing, 91.21 without.
"""


def seconds_by_epoch(steps):
    return {epoch: sum(step["step_ms"] for step in group) / 1000 for epoch, group in itertools.groupby(steps, key=lambda step: step["epoch"])}


def summarise(rows, options, score="top1"):
    """A row per arm; then the changes of plan, and the steps with all blocks frozen."""
    base = of_arm(rows, options.arms[0])
    summary = [arm_row(arm, of_arm(rows, arm), base, score) for arm in options.arms]
    changes = [change for row in rows if row["arm"] in options.arms for change in changes_of(row, options)]
    frozen = [row for row in rows if row["arm"] == "frozen"]
    return summary + changes + frozen


def of_arm(rows, arm):
    return {row["seed"]: row for row in rows if row["arm"] == arm}


def arm_row(arm, mine, base, score="top1"):
    taken = {seed: row["steps_s"] + row["changes_s"] for seed, row in mine.items()}
    ratios = [(base[seed]["steps_s"] + base[seed]["changes_s"]) / taken[seed] for seed in mine]
    whole = [base[seed]["wall_s"] / mine[seed]["wall_s"] for seed in mine]
    difference, half_width = arguments.mean_and_half_width([row[score] - base[seed][score] for seed, row in mine.items()])
    mean, deviation = arguments.mean_and_deviation([row[score] for row in mine.values()])
    return {
        "arm": arm,
        "seeds": len(mine),
        "steps_s": statistics.median(row["steps_s"] for row in mine.values()),
        "changes_s": statistics.median(row["changes_s"] for row in mine.values()),
        "x": statistics.median(ratios),
        "x_min": min(ratios),
        "x_max": max(ratios),
        "x_inconclusive": mine != base and arguments.range_holds(ratios, 1),
        "x_whole": statistics.median(whole),
        "x_published": PUBLISHED[arm][1],
        "epoch_s": statistics.median(row["epoch_s"] for row in mine.values()),
        score: mean,
        f"{score}_sd": deviation,
        "difference": difference,
        "half_width": half_width,
        "difference_inconclusive": arguments.interval_contains_zero(difference, half_width),
    }


def changes_of(row, options):
    """Each change of plan with its predicted and its measured step."""
    events = runs.events_of(options.out / row["run"])
    changes = runs.events_named(events, "transition")
    ends = [change["measured_before_ms"] for change in changes[1:]]
    ends += [summary["step_ms_of_last_plan"] for summary in runs.events_named(events, "summary")]
    result = []
    for change, measured in zip(changes, ends):
        predicted = change.get("predicted_ms")
        error = predicted / measured - 1 if predicted and measured else None
        result.append({"change_of": row["run"], "after_step": change["step"], "plan": plan_text(change["to"]), "seconds": change["seconds"],
                       "predicted_ms": predicted, "measured_ms": measured, "error": error})
    return result


def plan_text(plan):
    return f"{plan['stages']} x {plan['replicas']}, {plan.get('frozen_layers') or 0} layers frozen"


def markdown(summary, options):
    data = arguments.data_title(options) if options.data else f"{options.samples} images of four classes of Fashion-MNIST (pretrained on the other six)"
    return "\n".join([
        "# elastic_freeze\n",
        f"{options.model}, fine-tuned on {data}, {options.epochs} epochs, global batch {options.batch}, learning rate {options.lr:g}; "
        f"{options.devices} {options.device} devices, {options.devices} stages x 1 replica at the start; {arguments.count_with_spread(options.seeds, 'seed')}, arms in turns.\n",
        arm_table([row for row in summary if "x" in row], options.arms[0]),
        f"{arguments.INCONCLUSIVE_NOTE}\n",
        HEADLINE,
        "## Predicted and measured steps\n",
        change_table([row for row in summary if "change_of" in row]),
        "## All blocks frozen\n",
        frozen_table([row for row in summary if "forward_ms" in row and row.get("forward_ms")]),
    ])


def arm_table(rows, base):
    heads = ["arm", "steps, s (median)", "changes, s", f"x over {base}: median (range)", "of whole runs", "published x", "s / epoch", "top-1 %, mean ± sd",
             f"top-1 - {base}, points (95 %)"]
    cells = [[
        row["arm"], f"{row['steps_s']:.1f}", f"{row['changes_s']:.2f}", arguments.ranged(row, "x", 2) + arguments.inconclusive_mark(row["x_inconclusive"]),
        f"{row['x_whole']:.2f}", f"{row['x_published']:.2f} ({PUBLISHED[row['arm']][0]})", f"{row['epoch_s']:.2f}", arguments.plus_minus(row["top1"], row["top1_sd"]),
        "" if row["arm"] == base else arguments.plus_minus(row["difference"], row["half_width"], sign="+") + arguments.inconclusive_mark(row["difference_inconclusive"])]
        for row in rows]
    return arguments.table(heads, cells)


def change_table(rows):
    if not rows:
        return "No plan changed, or the run directories are gone.\n"
    heads = ["run", "after step", "stages x replicas", "change, s", "predicted, ms", "measured, ms", "predicted / measured - 1"]
    cells = [[row["change_of"], row["after_step"], row["plan"], f"{row['seconds']:.3f}", number(row["predicted_ms"]), number(row["measured_ms"]),
              "" if row["error"] is None else f"{100 * row['error']:+.0f} %"] for row in rows]
    errors = [abs(row["error"]) for row in rows if row["error"] is not None]
    median = f"\nMedian of the relative errors, without sign: {100 * statistics.median(errors):.0f} % of {len(errors)} changes.\n" if errors else ""
    return arguments.table(heads, cells) + median


def number(value):
    return "" if value is None else f"{value:.1f}"


def frozen_table(rows):
    heads = ["batch", "stages x replicas", "forward, ms", "backward, ms", "step, ms", "images/s", "syncs/s", "published: forward, ms", "backward, ms", "images/s", "syncs/s"]
    cells = [[row["batch"], f"{row['stages']} x {row['replicas']}", *(number(row[name]) for name in ("forward_ms", "backward_ms", "step_ms", "images_per_s", "syncs_per_s")),
              *PUBLISHED_FROZEN.get(row["batch"], ("", "", "", ""))] for row in rows]
    return arguments.table(heads, cells) + "\nOurs: medians; forward and backward are means over the devices, beside which a step has loading, waiting and all-reduce.\n"


def figures(rows, options):
    """Factors, and a line per run by the seconds of steps and changes, without evaluation."""
    return factor_figures([row for row in summarise(rows, options) if "x" in row], options) + curve_figures(rows, options)


def factor_figures(arms, options):
    told = [row for row in arms if row["x_published"]]
    published = [[row["arm"] for row in told], [row["x_published"] for row in told]]
    panel = {"y": f"x over {options.arms[0]}", "kind": "bar", "series": {"ours": arguments.points(arms, "arm", "x")},
             "published": {"PipeTransformer" if options.arms[0] == "none" else "PipeTransformer, over none": published}}
    return [{"file": "factors", "title": "training time by arm", "note": arguments.note(options.seeds, "seed", "medians"), "x": "", "panels": [panel]}]


def curve_figures(rows, options, score="top1", title="top-1 %"):
    curves = {arm: [Curve(runs.events_of(options.out / row["run"]), score) for row in rows if row["arm"] == arm] for arm in options.arms}
    if not all(curve.steps for of_arm in curves.values() for curve in of_arm):  # their folders are gone
        return []

    def panel(label, kind, of_curve, zero=False):
        return {"y": label, "kind": kind, "zero": zero, "series": {arm: [of_curve(curve) for curve in of_arm] for arm, of_arm in curves.items()}}

    def figure(file, title, *panels):
        return {"file": file, "title": title, "note": arguments.note_of_lines(options.seeds, "seed"), "x": "seconds of training", "panels": list(panels)}
    return [
        figure("accuracy", "accuracy against time", panel(title, "curve", lambda curve: curve.scores)),
        figure("epoch_time", "time of an epoch", panel("s / epoch", "curve", lambda curve: curve.epochs, zero=True)),
        figure("frozen_layers", "frozen layers", panel("layers", "step", lambda curve: curve.steps_of("frozen_layers"))),
        figure("stages_replicas", "stages and replicas", panel("stages", "step", lambda curve: curve.steps_of("stages"), zero=True),
               panel("replicas", "step", lambda curve: curve.steps_of("replicas"), zero=True)),
    ]


class Curve:
    """Values of the events of a run, with the time of the steps and changes before them: [times, values]."""

    def __init__(self, events, score="top1"):
        self.steps = []  # (time, event)
        self.scores = [[], []]
        clock = 0.0
        for event in events:
            if event["event"] == "step":
                clock += event["step_ms"] / 1000
                self.steps.append((clock, event))
            elif event["event"] == "transition":
                clock += event["seconds"]
            elif event["event"] == "eval":
                self.scores[0].append(clock)
                self.scores[1].append(event[score])
        by_epoch = seconds_by_epoch([event for _, event in self.steps])
        ends = {event["epoch"]: time for time, event in self.steps}
        self.epochs = [[ends[epoch] for epoch in by_epoch], list(by_epoch.values())]

    def steps_of(self, name):
        return [[time for time, _ in self.steps], [event[name] for _, event in self.steps]]
