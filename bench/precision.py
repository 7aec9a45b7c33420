#!/usr/bin/env python3
"""Does training in bfloat16 learn what it learns in float32? The same recipe in both precisions, seed by seed, on this machine.

    precision.py [--models resnet8,vit,gpt2,resnet18] [--seeds 3] [--cifar FOLDER] [--text FILE]

resnet8 and a ViT of size nano on Fashion-MNIST, GPT-2 of size nano on a text (--text), ResNet-18 on 5,000 images of CIFAR-10 in
its authors' binary version (--cifar); scores are top-1 on 2,000 test images, or a text's validation loss. A seed gives both
precisions the same weights and the same order of samples. Prints each run, means and deviations, and whether the means
differ by more than the seeds do (Welch's t at 95 %). Exit code 1 where bfloat16 is worse by more than that. SLUICE_BINARY names
the binary. Not here: PyTorch beside us (learning.py).
"""

import argparse
import json
import pathlib
import statistics
import tempfile

from learning import noise_of_means, train_ours, two_or_more

FASHION = {"name": "fashion_mnist"}
MODELS = {
    "resnet8": {"model": {"name": "resnet8"}, "data": FASHION | {"limit": 20000},
                "train": {"epochs": 2, "global_batch": 64, "optimizer": "adamw", "lr": 0.008}},
    "vit": {"model": {"name": "vit", "size": "nano", "patch_size": 4}, "data": FASHION | {"limit": 20000},
            "train": {"epochs": 3, "global_batch": 64, "optimizer": "adamw", "lr": 0.002}},
    "gpt2": {"model": {"name": "gpt2", "size": "nano"}, "data": {"name": "text"},
             "train": {"steps": 1500, "global_batch": 32, "optimizer": "adamw", "lr": 0.003}},
    "resnet18": {"model": {"name": "resnet18", "stem": "cifar"},
                 "data": {"name": "cifar10", "limit": 5000, "flip": True, "crop_padding": 4},
                 "train": {"epochs": 5, "global_batch": 64, "optimizer": "momentum", "nesterov": True, "lr": 0.05}},
}


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seeds", type=two_or_more, default=3)
    parser.add_argument("--cifar", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path)
    asked = parser.parse_args()
    asked.models = asked.models.split(",")
    for model in asked.models:
        if model not in MODELS:
            parser.error(f"there is no model {model}; there are {', '.join(MODELS)}")
    for model, option, value in (("resnet18", "--cifar", asked.cifar), ("gpt2", "--text", asked.text)):
        if model in asked.models and not value:
            parser.error(f"{model} needs {option}")
    return asked


def score(model, precision, seed, asked, folder):
    """Top-1 in percent; of a text the loss."""
    tables = json.loads(json.dumps(MODELS[model]))
    path = {"resnet18": asked.cifar, "gpt2": asked.text}.get(model)
    tables["data"] |= {"path": str(path.resolve())} if path else {}
    tables["train"] |= {"precision": precision, "seed": seed, "lr_schedule": "onecycle", "weight_decay": 5e-4,
                        "eval_every_epochs": 10**6, "eval_limit": 2000}
    tables |= {"device": {"list": "cpu"}, "replicas": {"local": 2}, "log": {"tensorboard": False}}
    answer = train_ours(tables, folder, f"{model}-{precision}-{seed}")
    return answer["loss"] if model == "gpt2" else answer["top1"]


def compare(model, asked, folder):
    """Whether bfloat16 is as good."""
    scores = {"fp32": [], "bf16": []}
    for seed in range(1, asked.seeds + 1):
        for precision, of_precision in scores.items():
            of_precision.append(score(model, precision, seed, asked, folder))
        print(f"{model} seed {seed}: " + ", ".join(f"{precision} {values[-1]:.4g}" for precision, values in scores.items()), flush=True)
    means = {precision: statistics.mean(values) for precision, values in scores.items()}
    difference, noise = means["bf16"] - means["fp32"], noise_of_means(*scores.values())
    unit = "loss" if model == "gpt2" else "top-1 %"
    print(f"{model}, {unit} of {asked.seeds} seeds: "
          + ", ".join(f"{precision} {means[precision]:.4g} +- {statistics.stdev(values):.2g}" for precision, values in scores.items())
          + f"; difference {difference:+.2g}, noise of the seeds {noise:.2g}", flush=True)
    return (difference if model == "gpt2" else -difference) <= noise


def main():
    asked = options()
    with tempfile.TemporaryDirectory() as folder:
        as_good = [compare(model, asked, pathlib.Path(folder)) for model in asked.models]
    return 0 if all(as_good) else 1


if __name__ == "__main__":
    raise SystemExit(main())
