"""Our decoder and resizer beside Pillow's, as torchvision's ImageFolder and Resize use them: byte for byte.

    compare_with_pillow.py --dump image_dump

Pictures of every kind are made here: greyscale, palette, 16 bits, transparency, progressive, every subsampling, CMYK,
EXIF orientation, interlaced, animated, cut off. With ../shared/data at hand some of its photographs are read as well.
"""

import io
import random
import tempfile
import unittest
import zlib

import numpy as np
from PIL import Image

from pictures import Dumper, encoded, is_refused_by_pillow, photograph, pictures, png, run_tests


class EqualToPillow(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.dumper = Dumper(cls.folder.name)
        cls.pictures = pictures()

    @classmethod
    def tearDownClass(cls):
        cls.dumper.close()
        cls.folder.cleanup()

    def test_whole_pictures(self):
        for name, data in self.pictures.items():
            with self.subTest(name):
                theirs = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
                ours = self.dumper.pixels("decode", data, *theirs.shape[:2], 0, 0, 0, 0)
                np.testing.assert_array_equal(ours, theirs)

    def test_grey_of_16_bits_keeps_its_upper_half(self):
        """Unlike Pillow, which makes everything above 255 of 65535 white."""
        values = np.random.default_rng(1).integers(0, 65536, (7, 5, 1))
        ours = self.dumper.pixels("decode", png(values, 0, 16), 7, 5, 0, 0, 0, 0)
        np.testing.assert_array_equal(ours, np.repeat(values >> 8, 3, axis=2))

    def test_parts_are_parts_of_the_whole(self):
        draw = random.Random(5)
        for name, data in self.pictures.items():
            with self.subTest(name):
                theirs = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
                for _ in range(40):
                    height, width = (draw.randint(1, n) for n in theirs.shape[:2])
                    top, left = draw.randint(0, theirs.shape[0] - height), draw.randint(0, theirs.shape[1] - width)
                    ours = self.dumper.pixels("decode", data, height, width, top, left, height, width)
                    np.testing.assert_array_equal(ours, theirs[top : top + height, left : left + width])

    def test_sizes(self):
        """Rows first: Pillow 13 begins with columns if the height shrinks more, so values may differ by 1."""
        draw = random.Random(6)
        kinds = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
        for name, data in self.pictures.items():
            theirs = Image.open(io.BytesIO(data)).convert("RGB")
            for kind, resampling in kinds.items():
                for _ in range(10):
                    height, width = draw.randint(1, 300), draw.randint(1, 300)
                    if draw.random() < 0.2:
                        height = theirs.height
                    with self.subTest(name, kind=kind, height=height, width=width):
                        whole = np.asarray(theirs.resize((width, theirs.height), resampling).resize((width, height), resampling))
                        top, left = draw.randint(0, height - 1), draw.randint(0, width - 1)
                        rows, columns = draw.randint(1, height - top), draw.randint(1, width - left)
                        box = (top, left, rows, columns)
                        ours = self.dumper.pixels("resize", data, rows, columns, kind, height, width, *box)
                        np.testing.assert_array_equal(ours, whole[top : top + rows, left : left + columns])
                        at_once = np.asarray(theirs.resize((width, height), resampling)).astype(int)
                        if height >= theirs.height:
                            np.testing.assert_array_equal(at_once, whole)
                        elif kind == "bilinear":
                            self.assertLessEqual(np.abs(at_once - whole).max(), 1)

    def test_what_is_cut_off_is_refused(self):
        for name, data in self.pictures.items():
            for kept in (0, 1, 10, len(data) // 3, len(data) // 2, len(data) - 60):
                with self.subTest(name, kept=kept):
                    if kept < len(data) - 1 and is_refused_by_pillow(data[:kept]):
                        for box in ((0, 0, 0, 0), (0, 0, 1, 1)):  # whole, and a part that does not reach the cut
                            answer, _ = self.dumper.ask("decode", data[:kept], *box)
                            self.assertRegex(answer, "^error .+")

    def test_damaged_files_are_as_pillow_sees_them_or_refused(self):
        draw = random.Random(8)
        for name, data in self.pictures.items():
            for _ in range(10):
                damaged = bytearray(data)
                damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
                answer, _ = self.dumper.ask("decode", bytes(damaged), 0, 0, 0, 0)
                self.assertRegex(answer, "^(ok|error) .+", name)

    def test_huge_headers_are_refused(self):
        png = bytearray(self.pictures["png"])
        png[16:24] = (60000).to_bytes(4, "big") * 2
        png[29:33] = zlib.crc32(png[12:29]).to_bytes(4, "big")
        jpeg = bytearray(self.pictures["jpeg 4:4:4"])
        frame = jpeg.index(b"\xff\xc0")
        jpeg[frame + 5 : frame + 9] = (60000).to_bytes(2, "big") * 2
        for data in (png, jpeg):
            answer, _ = self.dumper.ask("decode", bytes(data), 0, 0, 0, 0)
            self.assertIn("60000x60000 pixels, expected at most 100000000", answer)

    def test_other_files_are_refused(self):
        for data in (b"no picture", encoded(photograph(8, 8), "BMP")):
            answer, _ = self.dumper.ask("decode", data, 0, 0, 0, 0)
            self.assertIn("not a JPEG, PNG or WebP", answer)


if __name__ == "__main__":
    run_tests()
