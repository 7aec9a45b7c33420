#!/usr/bin/env python3
"""Training from a folder of pictures, from outside: what is learned, what broken files do, images in other sizes.

    image_folder_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import io
import pathlib
import shutil
import tarfile
import tempfile
import unittest

import numpy as np
from PIL import Image

import long_tests
import sluice_cli as cli

CLASSES = ("bars", "checks", "spots")


def picture(label, seed):
    """Of any size and colour: what tells the classes apart is the pattern."""
    draw = np.random.default_rng((label, seed))
    height, width = draw.integers(40, 90, 2)
    y, x = np.mgrid[0:height, 0:width] / draw.uniform(5, 9)
    pattern = (np.sin(3 * x), np.sin(3 * x) * np.sin(3 * y), np.cos(x) + np.cos(y))[label]
    colours = draw.integers(0, 256, (2, 3))
    pixels = np.where(pattern[..., None] > 0, colours[0], colours[1]) + draw.normal(0, 8, (height, width, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def make_folder(root, train=40, val=10):
    for split, count in (("train", train), ("val", val)):
        for label, name in enumerate(CLASSES):
            folder = root / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                ending = ("jpg", "png", "webp")[i % 3]
                picture(label, i + (1000 if split == "val" else 0)).save(folder / f"{i:03}.{ending}")


class ImageFolderTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.made = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        make_folder(cls.made)

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.data = self.folder / "data"
        shutil.copytree(self.made, self.data)

    def configuration(self, name="c", **changes):
        tables = {
            "device": {"list": "cpu", "threads": 1},
            "model": {"name": "resnet8", "image_size": 32},
            "data": {"name": "image_folder", "path": str(self.data), "crop_area": 0.3, "flip": True, "workers": 2},
            "train": {"epochs": 1, "global_batch": 20, "lr": 0.05, "optimizer": "momentum"}}
        for table, values in changes.items():
            tables[table] = {**tables.get(table, {}), **values}
        return cli.write_config(self.folder / f"{name}.toml", **tables)

    def train(self, name, *arguments, **changes):
        cli.must_run("train", self.configuration(name, **changes), "--run-dir", self.folder / name, *arguments)
        return self.folder / name

    def losses(self, name, **changes):
        return cli.column(self.train(name, **changes), "loss")

    def test_learns_to_tell_the_classes(self):
        run = self.train("run", train={"epochs": 8})
        top1 = cli.column(run, "top1", "eval")
        self.assertGreater(top1[-1], 0.7, top1)
        self.assertEqual(cli.column(run, "samples", "eval")[-1], 30)

    def test_the_same_bits_with_any_number_of_workers(self):
        some = self.losses("some")
        self.assertEqual(some, self.losses("none", data={"workers": 0}))
        for prefetch in long_tests.some((4,), (1, 4), "they decode one batch together"):  # with 1 they decode one batch together, with 4 also several side by side
            self.assertEqual(some, self.losses(f"many{prefetch}", data={"workers": 5, "prefetch": prefetch}))
        self.assertNotEqual(some, self.losses("other", train={"seed": 5}))

    def pack(self, shards):
        """The folder's pictures as tar files, in the folder's order; returns where they are."""
        packed = self.folder / "packed"
        for split in ("train", "val"):
            (packed / split).mkdir(parents=True)
            files = sorted(path for path in (self.data / split).glob("*/*"))
            for shard in range(shards):
                with tarfile.open(packed / split / f"{shard:02}.tar", "w") as archive:
                    for i in range(shard * len(files) // shards, (shard + 1) * len(files) // shards):
                        archive.add(files[i], f"{i:04}{files[i].suffix}")
                        label = tarfile.TarInfo(f"{i:04}.cls")
                        text = str(CLASSES.index(files[i].parent.name)).encode()
                        label.size = len(text)
                        archive.addfile(label, io.BytesIO(text))
        return packed

    def test_tar_files_of_the_same_pictures_give_the_same_losses(self):
        self.assertEqual(self.losses("tar", data={"name": "tar", "path": str(self.pack(4))}), self.losses("folder"))

    @long_tests.only("10 s")
    def test_shards_come_one_after_the_other_also_across_a_resume(self):
        data = {"name": "tar", "path": str(self.pack(6)), "order": "shards", "shuffle_window": 15}
        whole = self.losses("whole", data=data, train={"epochs": 3})
        self.assertNotEqual(whole, self.losses("shuffled", data={"name": "tar", "path": data["path"]}, train={"epochs": 3}))
        half = self.train("half", data=data, train={"steps": 8})
        cli.must_run("train", self.configuration("half", data=data, train={"steps": 18}), "--run-dir", half, "--resume", half)
        self.assertEqual(cli.column(half, "loss"), whole)
        both = self.folder / "both"
        cli.must_run_ranks(2, "train", self.configuration("both", data=data, train={"epochs": 3}), "--run-dir", both)
        for ours, alone in zip(cli.column(both, "loss")[:3], whole):
            self.assertAlmostEqual(ours, alone, delta=0.02 * alone)  # batch-norm sees half a batch in each process
        refused = (({"shuffle_window": 16}, "data.shuffle_window"), ({"limit": 30}, "complete sets of tar files"),
                   ({"validation": 0.2}, "complete sets of tar files"),
                   ({"name": "image_folder", "path": str(self.data)}, "complete sets of tar files"))
        for changes, said in refused:
            done = cli.run("train", self.configuration("other", data={**data, **changes}, train={"steps": 18}),
                           "--run-dir", half if "shuffle_window" in changes else self.folder / "other",
                           *(["--resume", half] if "shuffle_window" in changes else []))
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(said, cli.error_of(done))

    def test_a_broken_file_ends_the_run(self):
        broken = self.data / "train" / "checks" / "004.png"
        broken.write_bytes(broken.read_bytes()[:200])
        done = cli.run("train", self.configuration(), "--run-dir", self.folder / "run")
        self.assertEqual(done.returncode, 3, done.stderr)
        for part in (str(broken), "sample 44 of image_folder (train)", 'data.broken = "skip"'):
            self.assertIn(part, cli.error_of(done))

    def test_broken_files_are_replaced_and_counted(self):
        broken = [self.data / "train" / "bars" / "039.jpg", self.data / "val" / "spots" / "009.jpg"]
        for file in broken:
            file.write_bytes(b"")
        config = self.configuration("skip", data={"broken": "skip"})
        done = cli.must_run("train", config, "--run-dir", self.folder / "skip")
        for file in broken:
            self.assertIn(str(file), done.stderr)
        self.assertIn("broken files so far: 1", done.stderr)
        self.assertEqual(sum(cli.column(self.folder / "skip", "samples")), 120)
        self.assertEqual(cli.column(self.folder / "skip", "samples", "eval"), [30])

    def test_processes_replace_broken_files_by_the_same_ones(self):
        (self.data / "train" / "checks" / "011.webp").write_bytes(b"RIFF")
        changes = {"data": {"broken": "skip"}, "train": {"precision": "fp64"}, "model": {"name": "mlp"}}
        alone = self.configuration("alone", **changes)
        cli.must_run("train", alone, "--run-dir", self.folder / "alone")
        both = self.configuration("both", **changes)
        cli.must_run_ranks(2, "train", both, "--run-dir", self.folder / "both")
        for a, b in zip(cli.column(self.folder / "alone", "loss"), cli.column(self.folder / "both", "loss")):
            self.assertAlmostEqual(a, b, delta=1e-9)

    def test_resume_goes_on_with_the_same_views(self):
        whole = self.losses("whole", train={"steps": 8})
        self.train("part", train={"steps": 4})
        cli.must_run("train", self.configuration("more", train={"steps": 8}), "--resume", self.folder / "part", "--run-dir",
                     self.folder / "more")
        self.assertEqual(whole[4:], cli.column(self.folder / "more", "loss"))

    def test_all_random_changes_together(self):
        every = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1, "rand_augment": 2, "erasing": 0.5}
        changes = {"data": {**every, "views": 0}}
        some = self.losses("some", **changes)
        self.assertEqual(some, self.losses("none", data={**every, "workers": 0}))
        for key in long_tests.some(("hue", "rand_augment"), list(every), "tests/data has each of them"):
            with self.subTest(key):
                self.assertNotEqual(some, self.losses(key, data={**every, key: 0}))

    def test_a_changed_folder_is_not_resumed(self):
        self.train("part", train={"steps": 2})
        bars, checks = self.data / "train" / "bars", self.data / "train" / "checks"
        for old, new in ((bars / "000.jpg", bars / "000x.jpg"), (bars / "039.jpg", checks / "-0.jpg")):
            old.rename(new)
            done = cli.run("train", self.configuration(train={"steps": 4}), "--resume", self.folder / "part",
                           "--run-dir", self.folder / "more")
            self.assertEqual(done.returncode, 7, done.stderr)
            self.assertIn("differ from those of the checkpoint", done.stderr)
            new.rename(old)

    def test_limit_takes_of_every_class(self):
        run = self.train("few", data={"limit": 6})
        self.assertEqual(cli.column(run, "samples"), [6])

    def test_refusals(self):
        refused = [
            (3, {"data": {"path": str(self.data / "train")}}, "no such folder"),
            (2, {"data": {"crop_padding": 2}}, "both are random crops"),
            (2, {"data": {"resize": 20}}, "data.resize = 20 is less than the 32 pixels"),
            (2, {"data": {"crop_area": 1.5}}, "data.crop_area"),
        ]
        for code, changes, text in long_tests.some(refused[1:3], refused, "one of each kind"):
            with self.subTest(text):
                done = cli.run("train", self.configuration("refused", **changes), "--run-dir", self.folder / "refused")
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(text, cli.error_of(done))

    def test_folders_that_do_not_fit(self):
        (self.data / "val" / "spots").rename(self.data / "val" / "stains")
        done = cli.run("train", self.configuration(), "--run-dir", self.folder / "run")
        self.assertEqual(done.returncode, 3)
        self.assertIn("class spots is missing", cli.error_of(done))
        empty = self.data / "train" / "empty"
        empty.mkdir()
        done = cli.run("train", self.configuration(), "--run-dir", self.folder / "run")
        self.assertIn("empty: no file ends with one of .jpg", cli.error_of(done))


class OtherSizesTest(unittest.TestCase):
    """Data sets whose images have one size are resized to the model's."""

    def test_images_are_resized_to_the_model(self):
        with tempfile.TemporaryDirectory() as folder:
            config = cli.write_config(pathlib.Path(folder) / "c.toml", device={"list": "cpu", "threads": 1},
                                      model={"name": "toy_cnn", "image_size": 40},
                                      data={"name": "fashion_mnist", "limit": 64, "crop_area": 0.5},
                                      train={"epochs": 1, "global_batch": 32})
            cli.must_run("train", config, "--run-dir", pathlib.Path(folder) / "run")

    def test_padded_crops_and_rand_augment(self):
        with tempfile.TemporaryDirectory() as folder:
            losses = []
            for operations in (0, 2):
                config = cli.write_config(pathlib.Path(folder) / "c.toml", device={"list": "cpu", "threads": 1},
                                          model={"name": "toy_cnn", "image_size": 16},
                                          data={"name": "shapes", "samples": 64, "crop_padding": 2, "flip": True,
                                                "rand_augment": operations},
                                          train={"epochs": 1, "global_batch": 32})
                cli.must_run("train", config, "--run-dir", pathlib.Path(folder) / str(operations))
                losses.append(cli.column(pathlib.Path(folder) / str(operations), "loss"))
            self.assertNotEqual(*losses)


if __name__ == "__main__":
    unittest.main()
