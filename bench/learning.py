#!/usr/bin/env python3
"""What ResNet-18 learns with the same recipe here and in PyTorch, seed by seed, one after the other: top-1 on the test set.

    learning.py cifar10 FOLDER          CIFAR-10 in its authors' binary version, random crops and flips
    learning.py image_folder FOLDER     FOLDER/train and FOLDER/val, random resized crops and flips

SLUICE_BINARY names the binary. Prints each run's accuracy, means and deviations, and whether the means differ by more
than the seeds do (Welch's t at 95 %). Exit code 1 where ours is worse by more than that.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torchvision
from torch import nn
from torchvision import transforms

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "support"))
import sluice_cli as cli  # noqa: E402
from experiments import arguments  # noqa: E402  (sluice_cli says where they are)

MEAN = {"cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        "image_folder": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))}


def two_or_more(text):
    value = int(text)
    if value < 2:
        raise argparse.ArgumentTypeError(f"{value} is less than 2, and one seed has no deviation")
    return value


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=("cifar10", "image_folder"))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seeds", type=two_or_more, default=3)
    parser.add_argument("--epochs", type=arguments.positive, default=6)
    parser.add_argument("--limit", type=arguments.positive, default=5000, help="training samples of CIFAR-10")
    parser.add_argument("--eval", type=arguments.positive, default=2000, help="test samples of CIFAR-10")
    parser.add_argument("--batch", type=arguments.positive, default=64)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--size", type=arguments.positive, default=64, help="pixels of the folder's pictures")
    return parser.parse_args()


def train_ours(tables, folder, name):
    """What `sluice train --json` answers."""
    file = cli.write_config(folder / f"{name}.toml", **tables)
    done = subprocess.run([cli.BINARY, "train", file, "--run-dir", folder / name, "--json"], check=False,
                          env=cli.environment_without_launchers(), capture_output=True, text=True)  # for longer than a test may take
    if done.returncode:
        raise SystemExit(f"{name} ended with exit code {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def ours(asked, seed, folder):
    """Returns the top-1 of the last evaluation, in percent."""
    is_cifar = asked.data == "cifar10"
    config = {
        "model": {"name": "resnet18", "stem": "cifar", **({} if is_cifar else {"image_size": asked.size})},
        "data": {"name": asked.data, "path": str(asked.folder), "flip": True,
                 **({"crop_padding": 4, "limit": asked.limit} if is_cifar else
                    {"crop_area": 0.25, "resize": asked.size * 8 // 7})},
        "train": {"epochs": asked.epochs, "global_batch": asked.batch, "optimizer": "momentum", "nesterov": True,
                  "lr": asked.lr, "lr_schedule": "onecycle", "weight_decay": 5e-4, "seed": seed,
                  "eval_every_epochs": asked.epochs, **({"eval_limit": asked.eval} if is_cifar else {})},
        "device": {"list": "cpu"}, "log": {"tensorboard": False}}
    return train_ours(config, folder, f"run{seed}")["top1"]


class Cifar(torch.utils.data.Dataset):
    def __init__(self, files, limit, transform):
        records = np.concatenate([np.fromfile(file, np.uint8).reshape(-1, 3073) for file in files])[:limit]
        self.labels = records[:, 0].astype(np.int64)
        self.images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy())
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(self.images[index]), self.labels[index]


def sets(asked):
    """Training and test set of the peer, augmented as ours."""
    mean, deviation = MEAN[asked.data]
    if asked.data == "cifar10":
        end = [transforms.ConvertImageDtype(torch.float32), transforms.Normalize(mean, deviation)]
        train = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(), *end]
        files = [asked.folder / f"data_batch_{i}.bin" for i in range(1, 6)]
        return (Cifar(files, asked.limit, transforms.Compose(train)),
                Cifar([asked.folder / "test_batch.bin"], asked.eval, transforms.Compose(end)))
    end = [transforms.ToTensor(), transforms.Normalize(mean, deviation)]
    train = [transforms.RandomResizedCrop(asked.size, (0.25, 1)), transforms.RandomHorizontalFlip(), *end]
    test = [transforms.Resize(asked.size * 8 // 7), transforms.CenterCrop(asked.size), *end]
    return (torchvision.datasets.ImageFolder(asked.folder / "train", transforms.Compose(train)),
            torchvision.datasets.ImageFolder(asked.folder / "val", transforms.Compose(test)))


def peer(asked, seed):
    torch.manual_seed(seed)
    train, test = sets(asked)
    model = torchvision.models.resnet18(num_classes=len(getattr(train, "classes", range(10))))
    model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    model.to(memory_format=torch.channels_last)
    loader = torch.utils.data.DataLoader(train, asked.batch, shuffle=True, num_workers=1, persistent_workers=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=asked.lr, momentum=0.9, nesterov=True, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, asked.lr, total_steps=asked.epochs * len(loader),
                                                    cycle_momentum=False)
    for _ in range(asked.epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images.to(memory_format=torch.channels_last)), labels).backward()
            optimizer.step()
            scheduler.step()
    model.eval()
    with torch.no_grad():
        right = sum((model(images).argmax(1) == labels).sum().item()
                    for images, labels in torch.utils.data.DataLoader(test, 250))
    return 100 * right / len(test)


def noise_of_means(one, other):
    """By how much the means of two samples of n values may differ by chance (95 %, 2 (n - 1) degrees of freedom)."""
    n = len(one)
    return arguments.t95(2 * (n - 1)) * ((statistics.variance(one) + statistics.variance(other)) / n) ** 0.5


def main():
    asked = options()
    torch.set_num_threads(os.cpu_count())
    found = {"ours": [], "PyTorch": []}
    with tempfile.TemporaryDirectory() as name:
        for seed in range(1, asked.seeds + 1):
            found["ours"].append(ours(asked, seed, pathlib.Path(name)))
            found["PyTorch"].append(peer(asked, seed))
            print(f"seed {seed}: ours {found['ours'][-1]:.2f} %, PyTorch {found['PyTorch'][-1]:.2f} %", flush=True)
    means = {side: statistics.mean(values) for side, values in found.items()}
    spread = {side: statistics.stdev(values) for side, values in found.items()}
    difference, noise = means["ours"] - means["PyTorch"], noise_of_means(*found.values())
    print(f"top-1 of {asked.seeds} seeds: " + ", ".join(f"{side} {means[side]:.2f} +- {spread[side]:.2f} %" for side in found)
          + f"; difference {difference:+.2f}, noise of the seeds {noise:.2f}")
    return 1 if difference < -noise else 0


if __name__ == "__main__":
    raise SystemExit(main())
