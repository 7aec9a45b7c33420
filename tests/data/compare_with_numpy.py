"""Our reader of .npy files beside NumPy: the data set "npy" has the images and labels that were saved, or says what is
wrong with the files.

    compare_with_numpy.py --dump image_dump
"""

import pathlib
import sys
import tempfile
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "image"))
from pictures import Dumper, run_tests  # noqa: E402


class EqualToNumpy(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.dumper = Dumper(self.folder)
        self.addCleanup(self.dumper.close)

    def save(self, shape, label_type="<i8", count=9):
        draw = np.random.default_rng(len(shape))
        self.images = {name: draw.integers(0, 256, (count, *shape), dtype=np.uint8) for name in ("train", "test")}
        self.labels = {name: np.arange(count).astype(label_type) % 4 for name in ("train", "test")}
        for name in ("train", "test"):
            np.save(self.folder / f"{name}_images.npy", self.images[name])
            np.save(self.folder / f"{name}_labels.npy", self.labels[name])

    def stored(self, split="train", index=0):
        return self.dumper.ask_words("stored", self.folder, self.dumper.out, "npy", split, index)

    def test_every_layout(self):
        for shape, planes in (((6, 8), (1, 6, 8)), ((6, 8, 3), None), ((6, 8, 1), (1, 6, 8)), ((3, 6, 8), (3, 6, 8)),
                              ((1, 6, 8), (1, 6, 8))):
            self.save(shape)
            for split in ("train", "test"):
                for i in (0, 5, 8):
                    answer, raw = self.stored(split, i)
                    image = self.images[split][i]
                    expected = image.reshape(planes) if planes else image.transpose(2, 0, 1)
                    self.assertEqual(answer, f"ok {i % 4} of 4", shape)
                    np.testing.assert_array_equal(np.frombuffer(raw, np.uint8).reshape(expected.shape), expected)

    def test_every_type_of_label(self):
        for kind in ("|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8"):
            self.save((4, 4), kind)
            self.assertEqual(self.stored("test", 7)[0], "ok 3 of 4", kind)

    def test_newer_versions_of_the_format(self):
        self.save((4, 4))
        for version in ((1, 0), (2, 0), (3, 0)):
            with open(self.folder / "train_images.npy", "wb") as file:
                np.lib.format.write_array(file, self.images["train"], version)
            answer, raw = self.stored()
            self.assertEqual(answer, "ok 0 of 4")
            self.assertEqual(raw, self.images["train"][0].tobytes())

    def test_mean_and_deviation(self):
        for shape, axes in (((6, 8), (0, 1, 2)), ((6, 8, 3), (0, 1, 2)), ((3, 6, 8), (0, 2, 3))):
            self.save(shape)
            values = self.images["train"] / 255
            answer, _ = self.dumper.ask_words("numbers", self.folder, self.dumper.out, "npy", "test")
            mean, deviation = np.atleast_1d(values.mean(axes)), np.atleast_1d(values.std(axes))
            np.testing.assert_allclose([float(word) for word in answer.split()[1:]], [*mean, *deviation], rtol=1e-5)

    def refused(self, name, array, expected):
        self.save((4, 4))
        if isinstance(array, bytes):
            (self.folder / name).write_bytes(array)
        else:
            np.save(self.folder / name, array, allow_pickle=True)
        answer, _ = self.stored("test")
        self.assertTrue(answer.startswith("error"), answer)
        self.assertIn(name, answer)
        self.assertIn(expected, answer)

    def test_what_does_not_fit_is_refused(self):
        self.refused("train_images.npy", np.zeros((9, 4, 4), np.float32), "'<f4'")
        self.refused("train_images.npy", np.zeros((9, 4, 4), ">u2"), "'>u2'")
        self.refused("train_images.npy", np.asfortranarray(np.zeros((9, 4, 4), np.uint8)), "Fortran")
        self.refused("train_images.npy", np.zeros((9, 4, 5, 2), np.uint8),
                     "images of shape [9, 4, 5, 2] have 2 channels; 1 (grey) or 3 (RGB) are allowed")
        self.refused("train_images.npy", np.zeros((9, 5, 6, 4), np.uint8), "have 4 channels")
        self.refused("train_images.npy", np.zeros((9, 5, 6, 4), np.uint8), "to drop an alpha channel, save images[..., :3]")
        self.refused("train_images.npy", np.zeros((9, 4, 5, 6), np.uint8), "to drop an alpha channel, save images[:, :3]")
        self.refused("train_images.npy", np.zeros((0, 4, 4), np.uint8), "images must be uint8 of shape")
        self.refused("train_images.npy", np.zeros((9, 4, 4), np.int16), "found int16 of shape [9, 4, 4]")
        self.refused("train_images.npy", np.zeros((9, 4, 4), [("a", "u1"), ("b", "u1")]), "records")
        self.refused("train_images.npy", np.array([object()] * 9), "'|O'")
        self.refused("test_images.npy", np.zeros((9, 5, 4), np.uint8), "do not have the size and channels")
        self.refused("train_labels.npy", np.zeros(8, int), "one for each image")
        self.refused("test_labels.npy", np.array([0] * 8 + [4]), "label 8 is 4, expected 0 to 3")
        self.refused("train_labels.npy", np.array([0] * 8 + [-1]), "label 8 is -1")

    def test_damaged_files_are_refused(self):
        self.save((4, 4))
        whole = (self.folder / "train_images.npy").read_bytes()
        for damaged, expected in (
                (b"", "does not begin"), (whole[:9], "within its header"), (whole[:40], "within its header"),
                (whole[:-1], "bytes of numbers, expected"), (whole + b"x", "bytes of numbers, expected"),
                (whole.replace(b"(9, 4", b"(-9, "), "size of a dimension"), (whole.replace(b"'descr'", b"'xescr'"), "key"),
                (whole[:8] + b"\xff\xff" + whole[10:], "within its header"),
                (whole.replace(b"(9, 4, 4), ", b"(9" + b"9" * 17 + b"),"), "bytes of numbers, expected")):
            self.refused("train_images.npy", damaged, expected)


if __name__ == "__main__":
    run_tests()
