"""Fashion-MNIST cut in two by its classes, as two data sets in the same format: one to pretrain on, one to fine-tune on.

Real images, related and yet other classes; Debian's package of the data is all that is needed.
"""

import gzip
import os
import pathlib
import shutil
import struct

PLACE = pathlib.Path("/usr/share/datasets/fashion-mnist")
SOURCE = [0, 1, 2, 4, 6, 9]  # t-shirt, trouser, pullover, coat, shirt, boot
TARGET = [3, 5, 7, 8]  # dress, sandal, sneaker, bag
IMAGE = 28 * 28


def write(folder, samples, source=SOURCE, target=TARGET):
    """folder/source, and folder/target with the first `samples` training images; both with the whole test sets of their classes."""
    if folder.exists():
        return
    new = folder.with_name(folder.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    for split in ("train", "t10k"):
        images, labels = read(f"{split}-images-idx3-ubyte")[16:], read(f"{split}-labels-idx1-ubyte")[8:]
        write_classes(new / "source", split, images, labels, source, None)
        write_classes(new / "target", split, images, labels, target, samples if split == "train" else None)
    os.rename(new, folder)


def read(name):
    """Raises FileNotFoundError."""
    packed = PLACE / f"{name}.gz"
    return gzip.decompress(packed.read_bytes()) if packed.exists() else (PLACE / name).read_bytes()


def write_classes(folder, split, images, labels, classes, limit):
    folder.mkdir(parents=True, exist_ok=True)
    kept = [index for index, label in enumerate(labels) if label in classes][:limit]
    pixels = b"".join(images[IMAGE * index : IMAGE * (index + 1)] for index in kept)
    (folder / f"{split}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, len(kept), 28, 28) + pixels)
    (folder / f"{split}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, len(kept)) + bytes(classes.index(labels[index]) for index in kept))
