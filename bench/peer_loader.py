"""torchvision's side of bench/loader.py: a DataLoader of one worker process with the same transforms.

    peer_loader.py folder PATH SIZE BATCH BATCHES WORKERS --decoder pillow|torchvision
    peer_loader.py cifar10 PATH SIZE BATCH BATCHES WORKERS

For every line of standard input it takes BATCHES batches and answers with a JSON object; cpu_ms is that of the workers
and of this process together.
"""

import argparse
import json
import os
import pathlib
import sys
import time

import numpy as np
import torch
from PIL import Image
from torchvision import datasets, io, transforms
from torchvision.transforms import v2

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Cifar(torch.utils.data.Dataset):
    """The binary files, in memory, as torchvision's CIFAR10 gives its images: Pillow's."""

    def __init__(self, path, transform):
        files = sorted(pathlib.Path(path).glob("**/data_batch_*.bin"))
        records = np.concatenate([np.fromfile(file, np.uint8).reshape(-1, 3073) for file in files])
        self.targets = records[:, 0].astype(int).tolist()
        self.data = np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        self.transform = transform

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.data[index])), self.targets[index]


def dataset(options):
    if options.kind == "cifar10":
        return Cifar(options.path, transforms.Compose([
            transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
            transforms.Normalize(MEAN, STD)]))
    folder = pathlib.Path(options.path) / "train"
    if options.decoder == "pillow":
        return datasets.ImageFolder(folder, transforms.Compose([
            transforms.RandomResizedCrop(options.size), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
            transforms.Normalize(MEAN, STD)]))
    view = v2.Compose([v2.RandomResizedCrop(options.size, antialias=True), v2.RandomHorizontalFlip(),
                       v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])
    return datasets.ImageFolder(folder, view, loader=lambda path: io.decode_image(path, io.ImageReadMode.RGB))


def cpu_seconds():
    """Of this process and its children."""
    total = 0.0
    children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    for pid in ("self", *children):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        total += TICK_S * (int(fields[11]) + int(fields[12]))
    return total


def endless(loader):
    while True:
        yield from loader


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["folder", "cifar10"])
    parser.add_argument("path")
    parser.add_argument("size", type=int)
    parser.add_argument("batch", type=int)
    parser.add_argument("batches", type=int)
    parser.add_argument("workers", type=int)
    parser.add_argument("--decoder", choices=["pillow", "torchvision"], default="pillow")
    options = parser.parse_args()
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(dataset(options), batch_size=options.batch, shuffle=True, drop_last=True,
                                         num_workers=options.workers, persistent_workers=True, prefetch_factor=4)
    batches = endless(loader)
    for _ in sys.stdin:
        for _ in range(4 * options.workers):  # what was made while others had their turn
            next(batches)
        began, cpu = time.perf_counter(), cpu_seconds()
        for _ in range(options.batches):
            next(batches)
        seconds = time.perf_counter() - began
        print(json.dumps({"samples_per_s": options.batch * options.batches / seconds,
                          "cpu_ms": 1e3 * (cpu_seconds() - cpu)}), flush=True)


if __name__ == "__main__":
    main()
