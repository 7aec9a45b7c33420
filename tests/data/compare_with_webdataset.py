"""Our data set "tar" beside the WebDataset library: the same samples, bytes and classes in the same order, from archives that
Python's tarfile writes in every format; and what is wrong with others. Exits 77 without webdataset.

    compare_with_webdataset.py --dump image_dump
"""

import io
import itertools
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "image"))
from pictures import Dumper, run_tests  # noqa: E402

try:
    import webdataset
except ModuleNotFoundError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


class EqualToWebDataset(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for split in ("train", "val"):
            (self.folder / split).mkdir()
        self.dumper = Dumper(self.folder)
        self.addCleanup(self.dumper.close)

    def write(self, shard, members, kind=tarfile.PAX_FORMAT, folders=False):
        with tarfile.open(self.folder / shard, "w", format=kind) as archive:
            for name, content in members:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                if folders:
                    link = tarfile.TarInfo(f"{name}.link")
                    link.type, link.linkname = tarfile.SYMTYPE, name
                    folder = tarfile.TarInfo(f"folder of {len(name)}")
                    folder.type = tarfile.DIRTYPE
                    archive.addfile(folder)
                    archive.addfile(link)
                archive.addfile(info, io.BytesIO(content))

    def ours(self, split="train"):
        """[(key, label, bytes)], or the error."""
        answer, text = self.dumper.ask_words("files", self.folder, self.dumper.out, "tar", split)
        if not answer.startswith("ok"):
            return answer
        found = []
        for i, line in enumerate(text.decode().splitlines()):
            label, _, name = line.partition(" ")
            _, raw = self.dumper.ask_words("encoded", self.folder, self.dumper.out, "tar", split, i)
            shard, _, member = name.partition(".tar/")
            directory, _, base = member.rpartition("/")
            found.append((f"{directory}/" * bool(directory) + base.partition(".")[0], int(label), raw))
        return found

    def theirs(self, split="train"):
        shards = sorted(str(path) for path in (self.folder / split).glob("*.tar"))
        found = []
        for sample in webdataset.WebDataset(shards, shardshuffle=False, empty_check=False):
            picture = next((sample[part] for part in ("jpg", "jpeg", "png", "webp") if part in sample), None)
            label = sample["cls"] if "cls" in sample else json.loads(sample["json"])["label"] if "json" in sample else None
            if picture is not None:
                found.append((sample["__key__"], int(label), picture))
        return found

    def test_every_format(self):
        draw = random.Random(4)
        for name, kind in FORMATS.items():
            for path in self.folder.glob("*/*.tar"):
                path.unlink()
            for shard in range(3):
                members = []
                for i in range(7):
                    key = f"{'d' * draw.choice((1, 60))}/{shard}-{i}" + "n" * draw.choice((0, 30))
                    if name != "ustar" and i == 3:
                        key = f"{'long' * 60}/{shard}-{i}"  # over every field of a header
                    picture = (f"{key}.{draw.choice(('jpg', 'jpeg', 'png', 'webp', 'JPG'))}", draw.randbytes(draw.randrange(3000)))
                    label = ((f"{key}.cls", f"{i % 5}\n".encode()) if i % 2 else
                             (f"{key}.json", json.dumps({"caption": "x", "label": i % 5}).encode()))
                    parts = [picture, label, (f"{key}.txt", b"a caption"), (f"{key}.seg.png", b"another picture")]
                    draw.shuffle(parts)
                    members += parts
                members.append(("notes.txt", b"of nobody"))
                for split in ("train", "val"):
                    self.write(f"{split}/{shard:03}.tar", members, kind, folders=shard == 1)
            for split in ("train", "val"):
                theirs = self.theirs(split)
                self.assertEqual(len(theirs), 21)
                self.assertEqual(self.ours(split), theirs, name)

    def test_what_is_wrong_is_said(self):
        good = [("a.jpg", b"1"), ("a.cls", b"0")]
        cases = {
            "has no class": [("a.jpg", b"1"), ("b.jpg", b"1"), ("b.cls", b"1")],
            "has no picture": [("a.cls", b"1"), *[("b" + name[1:], content) for name, content in good]],
            "has two pictures": [("a.png", b"1"), *good],
            "number of a class": [("a.jpg", b"1"), ("a.cls", b"seven")],
            "neither it nor": [("readme.txt", b"")],
        }
        for said, members in cases.items():
            self.write("train/0.tar", members)
            self.assertIn(said, self.ours(), said)
        self.write("train/0.tar", good)
        whole = (self.folder / "train/0.tar").read_bytes()
        self.assertEqual(self.ours(), [("a", 0, b"1")])
        self.write("train/0.tar", [("a.jpg", b"1" * 5000), ("a.cls", b"0")])
        large = (self.folder / "train/0.tar").read_bytes()
        for said, content in {"cut off": large[:2000], "header is not": whole[:512] + b"x" * 1024, "too few": b"",
                              "compressed": b"\x1f\x8b" + bytes(600), "ends within": whole[:2048 + 100]}.items():
            (self.folder / "train/0.tar").write_bytes(content)
            self.assertIn(said, self.ours(), said)
        self.write("train/0.tar", [(f"{key}.{part}", b"1") for key in "ab" for part in ("jpg", "cls")])
        two = (self.folder / "train/0.tar").read_bytes()
        for bytes_left in (2048 - 1, 2048 - 512 + 1, 2048 - 100):  # in the padding of a.cls
            (self.folder / "train/0.tar").write_bytes(two[:bytes_left])
            self.assertIn("cut off after its last member", self.ours(), bytes_left)
        (self.folder / "train/0.tar").write_bytes(two[:2048])  # which nothing tells from a tar file without an end
        with open(self.folder / "warnings", "w+", encoding="utf-8") as warnings:
            dumper, self.dumper = self.dumper, Dumper(self.folder, stderr=warnings)
            self.addCleanup(self.dumper.close)
            self.assertEqual(self.ours(), [("a", 1, b"1")])
            self.dumper = dumper
            warnings.seek(0)
            self.assertIn("0.tar does not end with blocks of zeros as tar files do", warnings.read())
        (self.folder / "train/0.tar").unlink()
        self.assertIn("no tar files", self.ours())
        self.write("train/0.tar", good)
        self.write("val/0.tar", [("a.jpg", b"1"), ("a.cls", b"3")])
        self.assertIn("those of train have only 0 to 0", self.ours("val"))

    def test_hard_links_have_the_bytes_of_the_file(self):
        """tar stores a file's second name as a link to the first."""
        for (name, kind), dot in itertools.product(FORMATS.items(), ("", "./")):
            folder = "deep/" * (30 if name != "ustar" else 3)
            with tarfile.open(self.folder / "train/0.tar", "w", format=kind) as archive:
                for key in ("a", "b"):
                    for part, content in (("jpg", b"picture"), ("cls", b"4")):
                        info = tarfile.TarInfo(f"{folder}{key}.{part}")
                        if key == "b":
                            info.type, info.linkname = tarfile.LNKTYPE, f"{dot}{folder}a.{part}"
                        else:
                            info.size = len(content)
                        archive.addfile(info, io.BytesIO(content))
            self.assertEqual(self.ours(), [(f"{folder}a", 4, b"picture"), (f"{folder}b", 4, b"picture")], name)
        source = self.folder / "source"
        source.mkdir()
        (source / "a.jpg").write_bytes(b"x" * 700)
        (source / "a.cls").write_bytes(b"1")
        for part in ("jpg", "cls"):
            os.link(source / f"a.{part}", source / f"b.{part}")
        subprocess.run(["tar", "-cf", self.folder / "train/0.tar", "--sort=name", "-C", source, "."], check=True)
        self.assertEqual(self.ours(), [("./a", 1, b"x" * 700), ("./b", 1, b"x" * 700)])
        with tarfile.open(self.folder / "train/0.tar", "w") as archive:
            info = tarfile.TarInfo("b.jpg")
            info.type, info.linkname = tarfile.LNKTYPE, "gone.jpg"
            archive.addfile(info)
        self.assertIn("b.jpg is a hard link to gone.jpg, which is not earlier in the archive", self.ours())

    def test_what_looks_like_a_sample_and_is_not_taken_is_an_error(self):
        good = [("a.jpg", b"1"), ("a.cls", b"0")]
        dotted = [(f"photo_1.5x_{i:04}.{part}", b"1") for i in range(3) for part in ("jpg", "cls")]
        for members in (good + dotted, [("photo_1.jpg", b"1"), ("photo_1.cls", b"1"), *dotted], good + [("b.left.png", b"1")]):
            self.write("train/0.tar", members)
            self.assertRegex(self.ours(), r"(photo_1.5x_0000.jpg|b.left.png) has a second dot .* part of sample (photo_1|b); rename")
        with tarfile.open(self.folder / "train/0.tar", "w") as archive:
            for name in ("a.jpg", "a.cls"):
                info = tarfile.TarInfo(name)
                info.type, info.linkname = tarfile.SYMTYPE, f"elsewhere/{name}"
                archive.addfile(info)
        self.assertRegex(self.ours(), "a.jpg is a symbolic link, which is not followed; pack the files with tar --dereference")
        self.write("train/0.tar", good)
        (self.folder / "train/1.tar.gz").write_bytes(b"\x1f\x8b")
        self.assertIn("1.tar.gz: it is compressed", self.ours())

    def test_archives_that_were_joined_by_cat_are_an_error(self):
        """The zeros at the end of the first one hide the second one's samples."""
        joined = b""
        for key in ("a", "b"):
            self.write(f"val/{key}.tar", [(f"{key}.jpg", b"1"), (f"{key}.cls", b"0")])
            joined += (self.folder / f"val/{key}.tar").read_bytes()
        (self.folder / "train/all.tar").write_bytes(joined)
        self.assertIn("another archive follows the end of the first one (byte 2048) and would not be read; join archives with "
                      "tar --concatenate", self.ours())
        (self.folder / "train/all.tar").write_bytes((self.folder / "val/a.tar").read_bytes() + bytes(200_000) + b"x")
        self.assertIn("another archive follows", self.ours())  # also in a last block that is not whole
        shutil.copy(self.folder / "val/a.tar", self.folder / "train/all.tar")
        subprocess.run(["tar", "--concatenate", "-f", self.folder / "train/all.tar", self.folder / "val/b.tar"], check=True)
        self.assertEqual(self.ours(), [("a", 0, b"1"), ("b", 0, b"1")])

    def test_sizes_over_eight_gigabytes(self):
        """In base 256 (GNU) and in a pax header, of an archive that is mostly a hole."""
        size = (9 << 30) + 5
        for name in ("gnu", "pax"):
            info = tarfile.TarInfo("big.bin")
            info.size = size
            path = self.folder / "train/0.tar"
            with open(path, "wb") as file:
                file.write(info.tobuf(FORMATS[name]))
                file.seek(-(-size // 512) * 512, os.SEEK_CUR)
                for member, content in (("a.jpg", b"picture"), ("a.cls", b"2")):
                    info = tarfile.TarInfo(member)
                    info.size = len(content)
                    file.write(info.tobuf(FORMATS[name]) + content.ljust(512, b"\0"))
            self.assertEqual(self.ours(), [("a", 2, b"picture")], name)
            path.unlink()


if __name__ == "__main__":
    run_tests()
