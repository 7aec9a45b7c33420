"""Our image folder, evaluation's resize and crop, and random crops beside torchvision's own.

    compare_with_torchvision.py --dump image_dump
"""

import pathlib
import random
import tempfile
import unittest

import numpy as np
import torch
from PIL import Image
from torchvision import datasets, transforms
from torchvision.transforms import InterpolationMode, RandAugment, functional, v2
from torchvision.transforms.autoaugment import _apply_op

from pictures import PHOTOGRAPHS, Dumper, encoded, photograph, run_tests

# Names whose order is not that of people, hidden folders, folders in folders, endings in capitals, other files.
FILES = """
    train/b/2.png train/b/10.png train/b/1.PNG train/b/notes.txt train/b/sub/0.png train/b/sub-1/0.png train/b/sub/z/9.png
    train/B/x.png train/.hidden/y.jpg train/\u00e9t\u00e9/1.webp train/zebra/a.jpeg train/zebra/.b.jpg train/zebra/no.gif
    val/b/1.png val/B/x.png val/.hidden/y.jpg val/\u00e9t\u00e9/1.webp val/zebra/a.jpeg
""".split()


def make_folder(root):
    draw = random.Random(3)
    for name in FILES:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix.lower() in (".txt", ".gif"):
            file.write_text("no picture")
        else:
            photograph(draw.randint(20, 90), draw.randint(20, 90), len(name)).save(file)
    (root / "train" / "zebra" / "link").symlink_to(root / "train" / "b")


class EqualToTorchvision(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name) / "data"
        make_folder(cls.root)
        cls.dumper = Dumper(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.dumper.close()
        cls.folder.cleanup()

    def folders(self):
        return [self.root, *([PHOTOGRAPHS] if PHOTOGRAPHS.exists() else [])]

    def ask(self, *words):
        answer, raw = self.dumper.ask_words(*words)
        self.assertTrue(answer.startswith("ok"), answer)
        return raw

    def test_the_order_of_classes_and_files(self):
        for root in self.folders():
            for split, name in (("train", "train"), ("test", "val")):
                theirs = datasets.ImageFolder(root / name)
                ours = self.ask("list", root, self.dumper.out, split).decode().splitlines()
                self.assertEqual(ours, [f"{label} {file}" for file, label in theirs.samples])

    def test_sizes_of_evaluation(self):
        modes = {"bilinear": InterpolationMode.BILINEAR, "bicubic": InterpolationMode.BICUBIC}
        for root in self.folders():
            theirs = datasets.ImageFolder(root / "train")
            for i in range(0, len(theirs), max(1, len(theirs) // 20)):
                for size, resize in ((32, 32), (60, 71), (224, 256)):
                    for name, mode in modes.items():
                        view = transforms.Compose([transforms.Resize(resize, mode), transforms.CenterCrop(size)])
                        expected = np.asarray(view(theirs[i][0])).transpose(2, 0, 1).astype(int)
                        raw = self.ask("sized", root, self.dumper.out, "train", i, size, resize, name)
                        ours = np.frombuffer(raw, np.uint8).reshape(3, size, size)
                        with self.subTest(str(theirs.samples[i]), size=size, mode=name):
                            # Pillow 13 may take columns first; see compare_with_pillow.py.
                            difference = np.abs(ours - expected)
                            self.assertLessEqual(difference.max(), 2 if name == "bilinear" else 12)
                            self.assertLessEqual(difference.mean(), 0.2)

    def sample(self, root, index, broken="fatal"):
        """The pixels and the target, or what is wrong."""
        answer, raw = self.dumper.ask_words("sample", root, self.dumper.out, "train", index, 48, broken)
        if not answer.startswith("ok"):
            return answer
        return np.frombuffer(raw, np.float32).reshape(3, 48, 48), int(answer.split()[1])

    def test_normalised_samples(self):
        steps = [transforms.Resize(48), transforms.CenterCrop(48), transforms.ToTensor()]
        view = transforms.Compose([*steps, transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
        theirs = datasets.ImageFolder(self.root / "train", view)
        for i, (pixels, target) in enumerate(theirs):
            ours = self.sample(self.root, i)
            self.assertEqual(ours[1], target)
            np.testing.assert_allclose(ours[0], pixels.numpy(), atol=1.01 / 255 / 0.224)

    def test_the_next_sample_takes_the_place_of_a_broken_one(self):
        root = pathlib.Path(self.folder.name) / "broken"
        make_folder(root)
        files = [name for name, _ in datasets.ImageFolder(root / "train").samples]
        intact = [self.sample(root, i) for i in range(len(files))]
        last = len(files) - 1
        for i in (2, 3, last):
            pathlib.Path(files[i]).write_bytes(b"\xff\xd8\xff broken")
        for i, other in ((1, 1), (2, 4), (3, 4), (4, 4), (last, 0)):
            sample = self.sample(root, i, "skip")
            self.assertIsInstance(sample, tuple, sample)
            pixels, target = sample
            np.testing.assert_array_equal(pixels, intact[other][0])
            self.assertEqual(target, intact[other][1])
        self.assertIn(files[3], self.sample(root, 3))
        for file in files:
            pathlib.Path(file).write_bytes(b"")
        self.assertIn("the file is empty", self.sample(root, 3, "skip"))

    def test_operations_of_rand_augment(self):
        names = list(RandAugment()._augmentation_space(31, (8, 8)))
        draw = random.Random(4)
        for i, (height, width) in enumerate(((37, 50), (64, 64), (5, 9), (1, 1), (224, 224))):
            image = photograph(height, width, i)
            if i == 1:
                image = Image.new("RGB", (64, 64), (9, 200, 77))
            file = encoded(image, "PNG")
            space = RandAugment()._augmentation_space(31, (height, width))
            for number, name in enumerate(names):
                magnitudes, signed = space[name]
                for _ in range(12):
                    magnitude = float(magnitudes[draw.randrange(31)]) if magnitudes.ndim else 0.0
                    if signed and draw.random() < 0.5:
                        magnitude = -magnitude
                    theirs = np.asarray(_apply_op(image, name, magnitude, InterpolationMode.NEAREST, None))
                    ours = self.dumper.pixels("operation", file, height, width, number, repr(magnitude))
                    with self.subTest(name, magnitude=magnitude, size=(height, width)):
                        np.testing.assert_array_equal(ours, theirs)

    def test_magnitudes_of_rand_augment(self):
        rows = self.ask("magnitudes", "-", self.dumper.out, 224, 160).decode().splitlines()
        for row, (magnitudes, _) in zip(rows, RandAugment()._augmentation_space(31, (224, 160)).values(), strict=True):
            expected = magnitudes.numpy() if magnitudes.ndim else np.zeros(31)
            np.testing.assert_allclose([float(word) for word in row.split()], expected, rtol=2e-5)

    def test_hues_and_factors_of_colour_jitter(self):
        draw = random.Random(9)
        image = photograph(60, 70, 2)
        file = encoded(image, "PNG")
        for _ in range(60):
            turn = draw.uniform(-0.5, 0.5)
            theirs = np.asarray(functional.adjust_hue(image, turn))
            np.testing.assert_array_equal(self.dumper.pixels("hue", file, 60, 70, repr(turn)), theirs)
        adjust = {6: functional.adjust_brightness, 7: functional.adjust_saturation, 8: functional.adjust_contrast,
                  9: functional.adjust_sharpness}
        for number, function in adjust.items():
            for _ in range(30):
                factor = draw.uniform(0, 2.5)
                theirs = np.asarray(function(image, 1.0 + (factor - 1)))
                ours = self.dumper.pixels("operation", file, 60, 70, number, repr(factor - 1))
                np.testing.assert_array_equal(ours, theirs, str(function))

    def test_random_parts_are_distributed_as_theirs(self):
        """Chi-square of 10^4 draws each, over eight classes of height, width, top and left."""
        count = 10_000
        for height, width, area in ((300, 400, 0.08), (64, 200, 0.08), (333, 91, 0.5), (224, 224, 0.08), (224, 224, 0)):
            if area:
                image, draw = Image.new("RGB", (width, height)), transforms.RandomResizedCrop.get_params
                theirs = np.array([draw(image, (area, 1), (3 / 4, 4 / 3)) for _ in range(count)])
            else:
                image, draw = torch.empty(1, height, width), transforms.RandomErasing.get_params
                theirs = np.array([draw(image, (0.02, 0.33), (0.3, 3.3), [0.0])[:4] for _ in range(count)])
            text = self.ask("crops", "-", self.dumper.out, height, width, area, count).decode()
            ours = np.array([line.split() for line in text.splitlines()], int)
            self.assertEqual(len(ours), count)
            self.assertTrue((ours[:, 0] + ours[:, 2] <= height).all() and (ours[:, 1] + ours[:, 3] <= width).all())
            for i, name in enumerate(("top", "left", "height", "width")):
                with self.subTest(name, height=height, width=width):
                    self.assert_same_distribution(ours[:, i], theirs[:, i])

    def test_mixtures_are_distributed_as_theirs(self):
        count, height, width = 10_000, 20, 30
        batch = torch.stack([torch.zeros(1, height, width), torch.ones(1, height, width)])
        targets = torch.tensor([0, 1])
        for name, a in (("MixUp", 0.2), ("MixUp", 1.0), ("CutMix", 0.5), ("CutMix", 1.0)):
            mixer = getattr(v2, name)(alpha=a, num_classes=2)
            theirs = []
            for _ in range(count):
                images, shares = mixer(batch, targets)  # 0 where a sample's pixels are its own
                taken = images[0, 0].nonzero() if name == "CutMix" else []
                box = [*taken.min(0).values, *(taken.max(0).values - taken.min(0).values + 1)] if len(taken) else [0] * 4
                theirs.append([shares[0, 0], *box])
            options = (a, 0) if name == "MixUp" else (0, a)
            text = self.ask("mixes", "-", self.dumper.out, height, width, *options, count).decode()
            ours, theirs = np.array([line.split() for line in text.splitlines()], float), np.array(theirs, float)
            ours[ours[:, 3] * ours[:, 4] == 0, 1:] = 0  # where nothing is taken
            if name == "CutMix":  # of whole pixels, whatever the rounding
                ours[:, 0], theirs[:, 0] = (np.round(of[:, 0] * height * width) for of in (ours, theirs))
            for i, number in enumerate(("share", "top", "left", "height", "width")[:5 if name == "CutMix" else 1]):
                with self.subTest(name, a=a, number=number):
                    self.assert_same_distribution(ours[:, i], theirs[:, i])

    def assert_same_distribution(self, ours, theirs, classes=8):
        """Chi-square over classes that are equally frequent in theirs."""
        edges = np.unique(np.quantile(theirs, np.linspace(0, 1, classes + 1)[1:-1]))
        a = np.bincount(np.searchsorted(edges, theirs, "right"), minlength=len(edges) + 1)
        b = np.bincount(np.searchsorted(edges, ours, "right"), minlength=len(edges) + 1)
        used = a + b > 0
        self.assertLess((((a - b) ** 2)[used] / (a + b)[used]).sum(), 35)  # 7 degrees of freedom: once in 10^5


if __name__ == "__main__":
    run_tests()
