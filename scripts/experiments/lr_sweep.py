"""One model with several learning rates, by global batch: loss and accuracy, and which rates diverge.
  --scale small   a CPU device, resnet8, batches 32 and 64, 5 rates, 2 epochs: minutes (default)
  --scale full    a GPU, resnet50, batches 256 and 1024, 5 rates, 10 epochs

Of each batch the best rate; and whether it grows with the batch in proportion (Goyal et al. 2017) or with its root.
The data are synthetic images, or CIFAR-10, Fashion-MNIST or a folder of pictures from --data DIR."""

import math

from . import arguments, runs

SCALES = {
    "small": {"device": "cpu", "model": "resnet8", "batches": [32, 64], "epochs": 2, "seeds": 1, "workers": 1},
    "full": {"device": "cuda", "model": "resnet50", "batches": [256, 1024], "epochs": 10, "seeds": 3, "workers": 8},
}
RATES = [0.01, 0.03, 0.1, 0.3, 1.0]
COLUMNS = ["batch", "lr", "seed", "train_loss", "loss", "top1", "top5", "said"]
GROWS = ["rates", "seeds"]


def add_arguments(parser):
    parser.add_argument("--model", help="model.name")
    parser.add_argument("--rates", nargs="+", type=arguments.not_negative, default=RATES, help="train.lr of each run")
    parser.add_argument("--batches", nargs="+", type=arguments.positive, help="train.global_batch")
    parser.add_argument("--optimizer", default="momentum", help="train.optimizer (default: momentum)")
    arguments.add_numbers(parser, epochs="train.epochs", seeds="runs of each", workers="data.workers")


def plan(options):
    return [
        runs.Planned(name=f"batch{batch}-lr{rate:g}-seed{seed}", kind=f"batch{batch}", title=f"batch {batch}, rate {rate:g}, seed {seed}",
                     may_diverge=True, columns={"batch": batch, "lr": rate, "seed": seed}, sets=sets_of(batch, rate, seed, options))
        for seed in range(1, options.seeds + 1) for batch in options.batches for rate in options.rates
    ]


def sets_of(batch, rate, seed, options):
    return arguments.device_sets(options) | arguments.data_sets(options) | {
        "model.name": options.model,
        "data.workers": options.workers,
        "data.flip": True,
        "train.global_batch": batch,
        "train.epochs": options.epochs,
        "train.optimizer": options.optimizer,
        "train.lr": rate,
        "train.lr_schedule": "constant",
        "train.seed": seed,
        "pipeline.stages": 1,
        "pipeline.chunks": 1,
        "replicas.local": 1,
    } | ({} if options.data else {"data.samples": 2000})


def measure(planned, events, options):
    evaluation, epoch = runs.evaluations_of(planned, events)[-1], runs.epochs_of(planned, events)[-1]
    return {"train_loss": epoch["loss"], "loss": evaluation["loss"], "top1": evaluation["top1"], "top5": evaluation["top5"]}


def summarise(rows, options):
    summary = [of_one(batch, rate, [row for row in rows if (row["batch"], row["lr"]) == (batch, rate)])
               for batch in options.batches for rate in options.rates]
    for batch in options.batches:
        alive = [row for row in summary if row["batch"] == batch and row["top1"] is not None]
        best = max(alive, key=lambda row: row["top1"], default=None)
        for row in alive:
            row["is_best"] = row["top1"] == best["top1"]
            row["overlaps"] = not row["is_best"] and arguments.ranges_overlap(*(accuracies(rows, of) for of in (row, best)))
    return summary


def accuracies(rows, of):
    return [row["top1"] for row in rows if (row["batch"], row["lr"]) == (of["batch"], of["lr"])]


def of_one(batch, rate, rows):
    """A rate with which any seed diverges has no accuracy."""
    summary = {"batch": batch, "lr": rate, "diverged": sum(row["outcome"] != "done" for row in rows), "seeds": len(rows), "is_best": False, "overlaps": False}
    for name in ("train_loss", "loss", "top1", "top5"):
        values = [row[name] for row in rows]
        summary[name], summary[f"{name}_deviation"] = (None, None) if summary["diverged"] else arguments.mean_and_deviation(values)
    if not summary["diverged"]:
        arguments.add_range(summary, "top1", [row["top1"] for row in rows])
    return summary


def growth(summary, options):
    """Exponent of the growth of the best rate from the smallest to the largest batch; None if one rate is open."""
    best = {row["batch"]: row["lr"] for row in summary if row["is_best"] and row["lr"] > 0}
    small, large = min(options.batches), max(options.batches)
    if small == large or small not in best or large not in best:
        return None
    return math.log(best[large] / best[small]) / math.log(large / small)


def markdown(summary, options):
    cells = [[row["batch"], f"{row['lr']:g}", "**best**" if row["is_best"] else arguments.inconclusive_mark(row["overlaps"]).strip(),
              f"{row['diverged']} of {row['seeds']} diverged" if row["diverged"] else arguments.plus_minus(row["train_loss"], row["train_loss_deviation"], 3),
              arguments.plus_minus(row["loss"], row["loss_deviation"], 3), arguments.plus_minus(row["top1"], row["top1_deviation"]),
              arguments.plus_minus(row["top5"], row["top5_deviation"])] for row in summary]
    table = arguments.table(["global batch", "rate", "", "train loss", "loss", "top-1 %", "top-5 %"], cells)
    exponent = growth(summary, options)
    told = "" if exponent is None else (f"\nThe best rate grows with the batch to the power {exponent:.2f}: 1 is in proportion, 0.5 with the root. It is known to "
                                        "the steps between the rates that were tried.\n")
    return (f"# lr_sweep\n\n{options.model}, {arguments.data_title(options)}, {options.optimizer}, {arguments.several(options.epochs, 'epoch')}, {options.device}; "
            f"{arguments.count_with_spread(options.seeds, 'seed')}.\n\n{table}\n{arguments.INCONCLUSIVE} beside a rate: its range of top-1 overlaps with the best rate's.\n{told}")


def figures(rows, options):
    by_batch = {f"batch {batch}": [row for row in summarise(rows, options) if row["batch"] == batch and row["lr"] > 0] for batch in options.batches}
    panel = {
        "y": "top-1 %", "kind": "line", "log": "x",
        "series": {name: arguments.points([row for row in mine if not row["diverged"]], "lr", "top1") for name, mine in by_batch.items()},
        "failed": {"as": "diverged", "at": {name: [row["lr"] for row in mine if row["diverged"]] for name, mine in by_batch.items()}}}
    return [{"file": "lr_sweep", "title": f"{options.model}, {arguments.several(options.epochs, 'epoch')}", "note": arguments.note(options.seeds, "seed", "means"),
             "x": "learning rate", "panels": [panel]}]
