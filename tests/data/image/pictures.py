"""Picture files of every kind, made here, and image_dump, which reads them."""

import argparse
import io
import pathlib
import struct
import subprocess
import sys
import unittest
import zlib

import numpy as np
from PIL import Image

PHOTOGRAPHS = pathlib.Path(__file__).resolve().parents[4] / "shared" / "data" / "caltech101-16"


def photograph(height, width, seed=0):
    """Smooth shapes, sharp edges and a little noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    waves = [127 + 120 * np.sin(x / rng.uniform(3, 30) + y / rng.uniform(3, 30) + c) for c in range(3)]
    pixels = np.stack(waves, -1) + rng.normal(0, 6, (height, width, 3))
    pixels[(x - width / 2) ** 2 + (y - height / 2) ** 2 < (min(height, width) / 5) ** 2] = rng.integers(0, 255, 3)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def encoded(image, form, **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))


def png(pixels, kind, depth=8, interlaced=False):
    """What Pillow cannot write. pixels: [height, width, channels]; kind: PNG's colour type."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    height, width = pixels.shape[:2]
    passes = [pixels[top::down, left::right] for top, left, down, right in ADAM7] if interlaced else [pixels]
    rows = b"".join(b"\0" + row.astype(f">u{depth // 8}").tobytes() for part in passes if part.size for row in part)
    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def pictures():
    """Name -> bytes of a file."""
    made = {}
    rgb = photograph(75, 101)
    for sampling in ("4:4:4", "4:2:2", "4:2:0"):
        for progressive in (False, True):
            name = f"jpeg {sampling}{' progressive' if progressive else ''}"
            made[name] = encoded(rgb, "JPEG", quality=85, subsampling=sampling, progressive=progressive)
    made["jpeg 4:2:0 large"] = encoded(photograph(350, 481, 1), "JPEG", quality=90)
    made["jpeg low quality"] = encoded(rgb, "JPEG", quality=8)
    made["jpeg grey"] = encoded(rgb.convert("L"), "JPEG")
    made["jpeg grey progressive"] = encoded(rgb.convert("L"), "JPEG", progressive=True)
    made["jpeg CMYK"] = encoded(rgb.convert("CMYK"), "JPEG", quality=90)
    made["jpeg restart markers"] = encoded(rgb, "JPEG", restart_marker_rows=1)
    made["jpeg one pixel"] = encoded(photograph(1, 1), "JPEG")
    made["jpeg one row"] = encoded(photograph(1, 90), "JPEG")
    made["jpeg one column"] = encoded(photograph(90, 1), "JPEG")
    exif = Image.Exif()
    exif[0x0112] = 6
    made["jpeg EXIF orientation"] = encoded(rgb, "JPEG", exif=exif)
    made["png"] = encoded(rgb, "PNG")
    made["png grey"] = encoded(rgb.convert("L"), "PNG")
    made["png 1 bit"] = encoded(rgb.convert("1"), "PNG")
    for bits in (1, 2, 4, 8):
        made[f"png palette of {bits} bits"] = encoded(rgb.quantize(2**bits), "PNG", bits=bits)
    made["png palette, transparent"] = encoded(rgb.quantize(16), "PNG", transparency=3)
    with_alpha = rgb.copy()
    with_alpha.putalpha(rgb.convert("L"))
    made["png alpha"] = encoded(with_alpha, "PNG")
    made["png grey alpha"] = encoded(with_alpha.convert("LA"), "PNG")
    made["png transparent colour"] = encoded(rgb, "PNG", transparency=(1, 2, 3))
    made["png interlaced"] = png(np.asarray(rgb), 2, interlaced=True)
    made["png grey interlaced"] = png(np.asarray(rgb.convert("L"))[..., None], 0, interlaced=True)
    deep = np.random.default_rng(2).integers(0, 65536, (9, 12, 4))
    for name, kind, channels in (("RGB", 2, 3), ("RGBA", 6, 4), ("grey alpha", 4, 2)):
        made[f"png {name} of 16 bits"] = png(deep[..., :channels], kind, 16)
    made["webp"] = encoded(rgb, "WEBP", quality=80)
    made["webp lossless"] = encoded(rgb, "WEBP", lossless=True)
    made["webp alpha"] = encoded(with_alpha, "WEBP", quality=80)
    made["webp animated"] = encoded(rgb, "WEBP", save_all=True, append_images=[photograph(75, 101, 3)])
    for path in sorted(PHOTOGRAPHS.glob("train/*/*.jpg"))[::97]:
        made[f"photograph {path.parent.name}/{path.name}"] = path.read_bytes()
    return made


def is_refused_by_pillow(data):
    try:
        Image.open(io.BytesIO(data)).convert("RGB")
    except (OSError, SyntaxError, ValueError):
        return True
    return False


def run_tests():
    """The main of a test that is given the program: --dump image_dump, then unittest's own options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dump", required=True)
    options, rest = parser.parse_known_args()
    Dumper.program = options.dump
    unittest.main(argv=[sys.argv[0], *rest])


class Dumper:
    program = None

    def __init__(self, folder, **popen):
        self.folder = pathlib.Path(folder)
        self.out = self.folder / "out"
        self.process = subprocess.Popen([self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **popen)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def ask(self, what, data, *numbers):
        """The answer's words, and the bytes."""
        (self.folder / "in").write_bytes(data)
        return self.ask_words(what, self.folder / "in", self.out, *numbers)

    def ask_words(self, *words):
        self.out.write_bytes(b"")
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip(), self.out.read_bytes()

    def pixels(self, what, data, height, width, *numbers):
        answer, raw = self.ask(what, data, *numbers)
        if not answer.startswith("ok"):
            raise AssertionError(answer)
        return np.frombuffer(raw, np.uint8).reshape(height, width, 3)
