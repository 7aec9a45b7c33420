"""Data parallelism on two nodes beside one (mission M3): time to train, top-1 and top-5, how busy the devices are.
  one            one node
  same_global    two nodes with the same global batch, half of it a node
  same_device    two nodes with the same batch a node: twice the global batch in as many epochs
Between the nodes, which are network namespaces of this machine, is a network of --rate (needs root, ip and tc); with
--rate none both are processes of this machine.
  --scale small   a CPU device of one thread a node, resnet8 at 32 pixels, batch 32, 3 epochs: minutes (default)
  --scale full    all GPUs of a node, resnet50 at 224 pixels, batch 256, 90 epochs; needs --data

The data are synthetic images, or a folder of pictures (train/CLASS/..., val/CLASS/...) or CIFAR-10 from --data DIR."""

import re
import statistics

from . import arguments, namespaces, runs

SCALES = {
    "small": {"device": "cpu", "model": "resnet8", "image_size": 32, "batch": 32, "epochs": 3, "seeds": 2, "workers": 1, "lr": 0.05},
    "full": {"device": "cuda", "model": "resnet50", "image_size": 224, "batch": 256, "epochs": 90, "seeds": 1, "workers": 8, "lr": 0.1},
}
WAYS = {"one": "one node", "same_global": "two nodes, the same global batch", "same_device": "two nodes, the same batch a node"}
COLUMNS = ["way", "seed", "nodes", "global_batch", "lr", "train_s", "step_ms", "images_per_s", "exposed_ms", "device_busy", "top1", "top5"]
GROWS = ["ways", "seeds"]
THEIRS = ("Theirs (a university course's assignment, ResNet on ImageNet): two nodes 1 h 14 m 47 s against 2 h 24 m 23 s on one GPU = 1.93x; "
          "top-1 / top-5 32.2 / 58.1 on two, 37.5 / 64.5 on one, likely at twice the global batch and equal epochs: compare `same_device`.\n")


def add_arguments(parser):
    parser.add_argument("--model", help="model.name")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="the first is what the others are compared with")
    parser.add_argument("--rate", default="1gbit", help="of the network between the nodes, as tc has it; none: no network (default: 1gbit)")
    parser.add_argument("--lr", type=arguments.not_negative, help="train.lr")
    parser.add_argument("--scale-lr", action="store_true", help="twice the rate where the global batch is twice as large")
    arguments.add_numbers(parser, batch="samples of a step of one node alone", epochs="train.epochs", seeds="runs of each way",
                          workers="data.workers", image_size="model.image_size")


def check(options):
    if options.scale == "full" and not options.data:
        return "--scale full needs --data DIR, a folder of pictures"
    if options.rate != "none" and not re.fullmatch(r"[1-9][0-9]*[kmg]?bit", options.rate):
        return f"--rate {options.rate}: write a rate as tc has it, for example 100mbit, or none"
    missing = namespaces.missing() if options.rate != "none" else ""
    return f"no network between two nodes can be made here: {missing}; --rate none runs both as processes of this machine" if missing else ""


def plan(options):
    return [planned_run(way, seed, options) for seed in range(1, options.seeds + 1) for way in arguments.turned(options.ways, seed)]


def planned_run(way, seed, options):
    nodes = 1 if way == "one" else 2
    batch = options.batch * (2 if way == "same_device" else 1)
    rate = options.lr * (2 if way == "same_device" and options.scale_lr else 1)
    return runs.Planned(
        name=f"seed{seed}-{way}", kind=way, title=f"{WAYS[way]}, seed {seed}", processes=nodes,
        network=options.rate if nodes > 1 and options.rate != "none" else "",
        columns={"way": way, "seed": seed, "nodes": nodes, "global_batch": batch, "lr": rate}, sets=sets_of(batch, rate, seed, options))


def sets_of(batch, rate, seed, options):
    of_data = arguments.data_sets(options)
    views = {"data.crop_padding": 4} if of_data["data.name"] in ("cifar10", "shapes") else {}
    if of_data["data.name"] == "image_folder":
        views = arguments.folder_views(options.image_size) | {"data.broken": "skip"}
    return arguments.device_sets(options) | of_data | views | {
        "model.name": options.model,
        "model.image_size": options.image_size,
        "model.stem": "imagenet" if options.image_size >= 128 else "cifar",
        "data.workers": options.workers,
        "data.flip": True,
        "train.global_batch": batch,
        "train.epochs": options.epochs,
        "train.lr": rate,
        "train.seed": seed,
        "pipeline.stages": 1,
        "pipeline.chunks": 1,
        "replicas.local": 1,
    } | ({} if options.data else {"data.samples": 40 * options.batch})


def measure(planned, events, options):
    steps, evaluations = runs.steps_after(planned, events, 0), runs.evaluations_of(planned, events)
    return {
        "train_s": sum(step["step_ms"] for step in steps) / 1000,
        "step_ms": statistics.median(step["step_ms"] for step in steps),
        "images_per_s": sum(step["samples"] for step in steps) / sum(step["step_ms"] / 1000 for step in steps),
        "exposed_ms": statistics.median(step["allreduce_exposed_ms"] for step in steps),
        "device_busy": statistics.fmean(busy for step in steps for busy in step["device_busy"]),
        "top1": evaluations[-1]["top1"],
        "top5": evaluations[-1]["top5"],
    }


def summarise(rows, options):
    by_way = {way: [row for row in rows if row["way"] == way] for way in options.ways}
    summary = [of_one_way(way, mine) for way, mine in by_way.items()]
    arguments.add_speed_up(summary, rows, "train_s")
    return summary


def of_one_way(way, rows):
    summary = {"way": way, "nodes": rows[0]["nodes"], "global_batch": rows[0]["global_batch"]}
    for name in ("train_s", "step_ms", "images_per_s", "exposed_ms", "device_busy"):
        summary[name] = statistics.median(row[name] for row in rows)
    for name in ("top1", "top5"):
        summary[name], summary[f"{name}_deviation"] = arguments.mean_and_deviation([row[name] for row in rows])
    for name in ("train_s", "top1"):
        arguments.add_range(summary, name, [row[name] for row in rows])
    return summary


def markdown(summary, options):
    cells = [[WAYS[row["way"]], row["global_batch"], arguments.ranged(row, "train_s"), f"{row['speed_up']:.2f}x{arguments.inconclusive_mark(row['overlaps'])}", f"{row['images_per_s']:.1f}",
              f"{row['exposed_ms']:.1f}", f"{100 * row['device_busy']:.1f} %", arguments.plus_minus(row["top1"], row["top1_deviation"]),
              arguments.plus_minus(row["top5"], row["top5_deviation"])] for row in summary]
    table = arguments.table(["", "global batch", "s of training: median (range)", "", "images/s", "exposed ms", "device_busy", "top-1 %", "top-5 %"], cells)
    between = "processes of one machine" if options.rate == "none" else f"{options.rate} between the nodes"
    return (f"# two_nodes\n\n{options.model} at {options.image_size} pixels, {arguments.data_title(options)}, {arguments.several(options.epochs, 'epoch')}, {options.device}; "
            f"{between}; {arguments.count_with_spread(options.seeds, 'seed')}. Exposed: all-reduce that nothing hides, of a step.\n\n{table}\n"
            f"{arguments.INCONCLUSIVE_NOTE}\n\n{THEIRS}")


def figures(rows, options):
    summary = [{**row, "name": f"{row['way']}\nbatch {row['global_batch']}"} for row in summarise(rows, options)]
    panels = [{"y": label, "kind": "bar", "series": {"": arguments.points(summary, "name", name)}}
              for label, name in (("s of training", "train_s"), ("top-1 %", "top1"))]
    return [{"file": "two_nodes", "title": f"{options.model}, {arguments.several(options.epochs, 'epoch')}",
             "note": arguments.note(options.seeds, "seed", "medians of times, means of accuracies"), "x": "", "panels": panels}]
