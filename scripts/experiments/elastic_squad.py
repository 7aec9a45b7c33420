"""elastic_freeze --task squad: the arms of elastic_freeze for BERT that learns to answer questions; time to equal F1."""

import statistics

from . import arguments, elastic_freeze, elastic_report, runs, text_task

SMALL = {"device": "cpu", "devices": 2, "seeds": 5, "epochs": 8, "batch": 16, "lr": 0.0002, "chunks": 4, "length": 256, "tolerance": 1.0,
         "pretrain_steps": 168, "pretrain_lr": 0.0003}
FULL = {"device": "cuda", "devices": 8, "seeds": 5, "epochs": 3, "batch": 64, "lr": 3e-5, "chunks": 16, "length": 256, "tolerance": 1.0}
SCALES = {"small": SMALL, "full": FULL}
OF_IMAGES = ("pretrain", "model", "samples", "frozen_batches", "frozen_steps")
COLUMNS = ["arm", "seed", "batch", "steps_s", "changes_s", "epoch_s", "epochs", "f1", "exact_match", "loss", "stages", "replicas",
           "frozen_layers", "changes", "f1_by_second"]
GROWS = elastic_freeze.GROWS
ADAM = {"train.optimizer": "adamw", "train.clip_norm": 1.0, "train.lr_schedule": "linear"}

# PipeTransformer, BERT large on SQuAD 1.1, 2 machines with 8 GPUs each.
PUBLISHED = {"none": (1.0, "5 h 7 m, F1 90.71"), "all": (2.1, "2 h 26 m, F1 90.69")}
HEADLINE = """Published, PipeTransformer over Pipe+DDP, BERT large on SQuAD 1.1 with 2 machines of 8 GPUs: 5 h 7 m and 2 h 26 m of
training, 2.10x; F1 90.71 and 90.69.
"""


def check(options):
    if options.scale == "full" and not options.weights:
        return "--scale full needs --weights FILE: BERT large, with its config.json and tokenizer.json in the same folder"
    return text_task.check(options, OF_IMAGES) or (text_task.check_weights(options) if options.weights else "")


def prepare(options):
    text_task.prepare(options)
    if not options.weights:
        text_task.cut_articles(options.data, options.out / "data")


def plan(options):
    tuned = [fine_tuning(arm, seed, options) for seed in range(1, options.seeds + 1) for arm in arguments.turned(options.arms, seed)]
    return ([] if options.weights else [pretraining(options)]) + tuned


def pretraining(options):
    """MiniLM was trained to compare sentences, so its features suit questions less than BERT large's. It first learns from half of the articles."""
    sets = arguments.device_sets(options) | text_task.data_sets("{out}/minilm", options) | ADAM | {
        "data.path": "{out}/data/source", "data.by_length": True, "pipeline.stages": 1, "replicas.local": options.devices,
        "model.config": "{out}/minilm/config.json", "model.weights": "{out}/minilm/model.safetensors", "model.dropout": -1,
        "train.lr": options.pretrain_lr, "train.steps": options.pretrain_steps, "train.global_batch": options.batch, "train.seed": 1,
        "checkpoint.every_minutes": 0, "log.tensorboard": False}
    return runs.Planned(name="pretrain", kind="pretrain", title="pretraining", sets=sets,
                        columns={"arm": "pretrain", "seed": 1, "batch": options.batch}, keep_checkpoints=True)


def starting_sets(options):
    """Data and weights: --weights and all questions, or the pretrained MiniLM and the other half of the articles."""
    if options.weights:
        folder = text_task.weights_folder(options)
        return text_task.data_sets(folder, options) | {"model.config": f"{folder}/config.json", "model.weights": options.weights.resolve()}
    folder = "{out}/minilm"
    return text_task.data_sets(folder, options) | {
        "data.path": "{out}/data/target", "model.config": f"{folder}/config.json",
        "model.weights": f"{{out}}/pretrain/run/checkpoints/step-{options.pretrain_steps}/model.safetensors"}


def fine_tuning(arm, seed, options):
    sets = arguments.device_sets(options) | starting_sets(options) | ADAM | {
        "model.dropout": -1,  # as in config.json
        "data.by_length": True,
        "train.lr": options.lr,
        "train.warmup_epochs": 0.06 * options.epochs,
        "train.epochs": options.epochs,
        "train.global_batch": options.batch,
        "train.seed": seed,
        "pipeline.stages": options.devices,
        "pipeline.chunks": options.chunks,
        "replicas.local": 1,
        "checkpoint.every_minutes": 0,
        "log.tensorboard": False,
        "freeze.policy": "linear",
        "freeze.alpha": 1 / 3,
    } | elastic_freeze.ARMS[arm]
    return runs.Planned(name=f"{arm}-seed{seed}", kind=arm, title=f"{arm}, seed {seed}", sets=sets,
                        columns={"arm": arm, "seed": seed, "batch": options.batch})


def measure(planned, events, _):
    row = elastic_freeze.of_all_steps(planned, events, ["f1", "exact_match"])
    curve = elastic_report.Curve(events, "f1").scores
    return row | {"f1_by_second": " ".join(f"{second:.6g}:{score:.9g}" for second, score in zip(*curve))}


def second_of(row, wanted):
    """When a run first reached an F1, in seconds of steps and changes of plan; None if it never did."""
    for pair in row["f1_by_second"].split():
        second, score = map(float, pair.split(":"))
        if score >= wanted:
            return second
    return None


def summarise(rows, options):
    """A row per arm, then the changes of plan."""
    summary = elastic_report.summarise(rows, options, "f1")
    base = elastic_report.of_arm(rows, options.arms[0])
    for row in summary:
        if "x" in row:
            row |= equal_f1(elastic_report.of_arm(rows, row["arm"]), base, options)
            row["x_published"] = PUBLISHED.get(row["arm"], (None, ""))[0]
    return summary


def equal_f1(mine, base, options):
    """Time to the last F1 of the first arm with the same seed, less the tolerance. A seed that never reaches it has factor 0."""
    wanted = {seed: base[seed]["f1"] - options.tolerance for seed in mine}
    seconds = {seed: second_of(row, wanted[seed]) for seed, row in mine.items()}
    ratios = [second_of(base[seed], wanted[seed]) / second if second else 0.0 for seed, second in seconds.items()]
    exact, exact_sd = arguments.mean_and_deviation([row["exact_match"] for row in mine.values()])
    return {
        "reached": sum(second is not None for second in seconds.values()),
        "equal_s": arguments.median_or_none(seconds.values()),
        "equal_x": statistics.median(ratios),
        "equal_x_min": min(ratios),
        "equal_x_max": max(ratios),
        "equal_x_inconclusive": mine != base and arguments.range_holds(ratios, 1),
        "exact_match": exact,
        "exact_match_sd": exact_sd,
    }


def markdown(summary, options):
    base = options.arms[0]
    model = options.weights or "MiniLM"
    trained = f"fine-tuned on the questions of {options.data.name}" if options.weights else (
        f"trained for {options.pretrain_steps} steps on every other article of {options.data.name}, then fine-tuned on the rest")
    return "\n".join([
        "# elastic_freeze --task squad\n",
        f"BERT ({model}), {trained}, {options.epochs} epochs, windows of {options.length} tokens, "
        f"global batch {options.batch}, learning rate {options.lr:g}; {options.devices} {options.device} devices, {options.devices} stages x 1 "
        f"replica at the start; {arguments.count_with_spread(options.seeds, 'seed')}, arms in turns. Batches of similar lengths, padded to the longest window.\n",
        arm_table([row for row in summary if "x" in row], base),
        f"Equal F1: the last F1 of {base} with the same seed, less {options.tolerance:g} points. Its time is that of the steps and changes of "
        "plan before the first evaluation that reaches it, in each arm. A seed that never reaches it counts as factor 0.\n",
        f"{arguments.INCONCLUSIVE_NOTE}\n",
        HEADLINE,
        "## Predicted and measured steps\n",
        elastic_report.change_table([row for row in summary if "change_of" in row]),
    ])


def arm_table(rows, base):
    heads = ["arm", "to equal F1, s (median)", f"x over {base}: median (range)", "seeds that reach it", "all steps, s (median)", "changes, s",
             f"x over {base}, all epochs: median (range)", "of whole runs", "published x", "s / epoch", "F1, mean ± sd", "exact match, mean ± sd",
             f"F1 - {base}, points (95 %)"]
    return arguments.table(heads, [cells_of(row, base) for row in rows])


def cells_of(row, base):
    published = f"{row['x_published']:.2f} ({PUBLISHED[row['arm']][1]})" if row["x_published"] else ""
    difference = arguments.plus_minus(row["difference"], row["half_width"], sign="+")
    return [
        row["arm"],
        elastic_report.number(row["equal_s"]),
        arguments.ranged(row, "equal_x", 2) + arguments.inconclusive_mark(row["equal_x_inconclusive"]),
        f"{row['reached']} of {row['seeds']}",
        f"{row['steps_s']:.1f}",
        f"{row['changes_s']:.2f}",
        arguments.ranged(row, "x", 2) + arguments.inconclusive_mark(row["x_inconclusive"]),
        f"{row['x_whole']:.2f}",
        published,
        f"{row['epoch_s']:.2f}",
        arguments.plus_minus(row["f1"], row["f1_sd"]),
        arguments.plus_minus(row["exact_match"], row["exact_match_sd"]),
        "" if row["arm"] == base else difference + arguments.inconclusive_mark(row["difference_inconclusive"]),
    ]


def figures(rows, options):
    arms = [row for row in summarise(rows, options) if "x" in row]
    return elastic_report.factor_figures(arms, options) + elastic_report.curve_figures(rows, options, "f1", "F1")
