#!/usr/bin/env python3
"""`sluice schedule` from outside: what it prints, what it refuses and how.

    schedule_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import json
import os
import pathlib
import pty
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

import long_tests
import sluice_cli as cli

NAMES = ("gpipe", "1f1b", "eager-1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-h2", "zb-v", "dualpipe-v")
KEYS = ["name", "stages", "virtual", "chunks", "makespan", "bubble_fraction", "barrier_bubble", "window_bubble", "idle",
        "peak_in_flight", "receive_buffers", "order"]


def schedule(*arguments):
    return json.loads(cli.must_run("schedule", *arguments, "--json").stdout)


def from_standard_input(content, *arguments):
    return subprocess.run([cli.BINARY, "schedule", "--order", "-", *arguments], input=content, check=False,
                          capture_output=True)


class ScheduleTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def assert_refused(self, arguments, *parts):
        done = cli.run("schedule", *arguments)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        for part in parts:
            self.assertIn(str(part), cli.error_of(done))

    def order(self, text, name="order.txt"):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def test_costs_are_of_a_device_and_may_be_unequal(self):
        found = schedule("interleaved", "--stages", 4, "--chunks", 8, "--forward", 1, "--input", 1.2, "--weight", 0.8)
        self.assertAlmostEqual(found["makespan"], 28.5, places=9)
        self.assertAlmostEqual(found["bubble_fraction"], 4.5 / 28.5, places=12)
        self.assertEqual(found["peak_in_flight"][0], 5.5)
        found = schedule("zb-v", "--stages", 4, "--chunks", 8, "--forward", 1, "--input", 1.2, "--weight", 0.8)
        self.assertAlmostEqual(found["makespan"], 25.8, places=9)
        self.assertAlmostEqual(found["window_bubble"], 1.2, places=9)
        # gpipe: sum(F+B) + (m-1)(max F + max B)
        found = schedule("gpipe", "--stages", 3, "--chunks", 5, "--forward", "1,2,3", "--backward", "4,2,1")
        self.assertAlmostEqual(found["makespan"], 13 + 4 * (3 + 4), places=9)
        self.assertEqual(found["idle"], [41 - 25, 41 - 20, 41 - 20])

    def test_a_backward_is_halved_where_the_schedule_splits_it(self):
        shape = ("zb-h1", "--stages", 3, "--chunks", 6, "--forward", 1.5)
        self.assertEqual(schedule(*shape, "--backward", 3)["makespan"],
                         schedule(*shape, "--input", 1.5, "--weight", 1.5)["makespan"])

    def test_the_hop(self):
        # 2c((p-1)m/p + p-2), and 2(pv-1)c
        for name, extra in (("1f1b", 1.6), ("interleaved", 1.4)):
            without = schedule(name, "--stages", 4, "--chunks", 8)["makespan"]
            self.assertAlmostEqual(schedule(name, "--stages", 4, "--chunks", 8, "--hop", 0.1)["makespan"],
                                   without + extra, places=9)

    def test_overlapped_pairs(self):
        shape = ("dualpipe-v", "--stages", 4, "--chunks", 8)
        self.assertIn("(0F7;7B3)", schedule(*shape)["order"][0])
        self.assertLess(schedule(*shape, "--overlap", 1)["makespan"], schedule(*shape)["makespan"])

    def test_an_order_file_instead_of_a_name(self):
        path = self.order("# by hand\n0F0 0F1 0I0 0W0 0B1\n1F0,1B0,1F1,1B1\n")
        found = schedule("--order", path, "--forward", "1,2")
        self.assertEqual(found["name"], "custom")
        self.assertEqual((found["stages"], found["chunks"], found["virtual"]), (2, 2, 1))
        self.assertEqual(found["order"], [["0F0", "0F1", "0I0", "0W0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]])
        self.assertEqual(schedule("--order", path, "--stages", 2, "--chunks", 2)["order"], found["order"])
        contradictions = (("--stages", 3, "has 2 devices, but --stages is 3"), ("--chunks", 1, "has 2 chunks, but --chunks is 1"),
                          ("--virtual", 2, "has 1 stage, but --virtual is 2"))
        for option, number, why in long_tests.some(contradictions[:1], contradictions, "one of each kind"):
            self.assert_refused(("--order", path, option, number), path, why)
        self.assert_refused(("--order", path, "1f1b", "--stages", 2, "--chunks", 2), "--order", "NAME")

    def test_the_order_of_options_does_not_matter(self):
        expected = schedule("zb-h1", "--stages", 4, "--chunks", 8, "--forward", "1,2,1,1", "--input", 2, "--weight", 1)
        options = [("--forward", "1,2,1,1"), ("--input", 2), ("--weight", 1)]
        for last in long_tests.some(options[:1], options, "other options last"):
            before = [word for option in options if option != last for word in option]
            self.assertEqual(schedule(*before, *last, "zb-h1", "--stages", 4, "--chunks", 8), expected)
        self.assertEqual(schedule("--backward", 3, "1f1b", "--stages", 4, "--chunks", 8)["makespan"], 11 * 4)

    @long_tests.only("tests/pipeline/schedule has costs in CI")
    def test_what_is_not_given_takes_1(self):
        shape = ("zb-h1", "--stages", 2, "--chunks", 4)
        self.assertEqual(schedule(*shape, "--input", 2), schedule(*shape, "--input", 2, "--weight", 1))
        self.assertEqual(schedule(*shape, "--weight", 2), schedule(*shape, "--input", 1, "--weight", 2))

    def test_json_has_what_is_promised_and_every_order_is_read_back(self):
        path = self.folder / "order.txt"
        for name in long_tests.some(NAMES[2::4], NAMES, "tests/pipeline/schedule reads and writes all"):
            found = schedule(name, "--stages", 3, "--chunks", 7, "--text", path)
            self.assertEqual(list(found), KEYS)
            self.assertEqual((found["name"], found["stages"], found["chunks"]), (name, 3, 7))
            self.assertEqual([len(found[key]) for key in ("idle", "peak_in_flight", "order")], [3, 3, 3])
            self.assertEqual(schedule("--order", path), found)

    def test_a_bad_order_file_is_2_and_says_where(self):
        (self.folder / "binary").write_bytes(bytes(range(256)) * 40)
        self.assert_refused(("--order", self.folder / "none.txt"), "none.txt", "cannot be read")
        self.assert_refused(("--order", self.order("0F0 0F1 0B0")), "breaks the rule 'complete'", "0B1")
        self.assert_refused(("--order", self.order("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1")),
                            "'progress'", "0B0 waits for 1B0, which is after 1F1 on device 1")
        self.assert_refused(("--order", self.folder / "binary"), "binary:1:1")
        if long_tests.RUN:
            self.assert_refused(("--order", self.folder), "is a folder")
            self.assert_refused(("--order", self.order("")), "order.txt:1:1", "no devices")
            self.assert_refused(("--order", self.order("0F0 0X0")), "order.txt:1:5", "0X0")
            self.assert_refused(("--order", "/proc/self/mem"), "/proc/self/mem: reading it failed")
        # A header's stages= counts the stages of all devices.
        self.assert_refused(("--order", self.order("schedule=x stages=2 micro_batches=1\n0F0 2F0\n1F0 3F0\n")),
                            "'range'", "stage 2", "the stages of all devices")

    @long_tests.only("one more start")
    def test_a_byte_order_mark_is_skipped(self):
        path = self.folder / "marked.txt"
        path.write_text("0F0 0B0\n", encoding="utf-8-sig")
        self.assertEqual(schedule("--order", path)["order"], [["0F0", "0B0"]])

    def test_standard_input_and_output(self):
        done = from_standard_input(b"0F0 0B0\n1F0 1B0\n", "--json")
        self.assertEqual(json.loads(done.stdout)["order"], [["0F0", "0B0"], ["1F0", "1B0"]])
        done = from_standard_input(b"0F0 0X0\n")
        self.assertEqual((done.returncode, done.stdout), (2, b""))
        self.assertIn(b"standard input:1:5", done.stderr)
        folder = os.open(self.folder, os.O_RDONLY)
        done = subprocess.run([cli.BINARY, "schedule", "--order", "-"], stdin=folder, check=False, capture_output=True)
        os.close(folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"standard input: reading it failed", done.stderr)
        shape = ("1f1b", "--stages", 2, "--chunks", 2)
        printed = cli.must_run("schedule", *shape, "--text", "-").stdout
        self.assertEqual(json.loads(from_standard_input(printed.encode(), "--json").stdout)["name"], "1f1b")
        self.assertEqual(printed, "schedule=1f1b stages=2 micro_batches=2\n0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n")
        printed = cli.must_run("schedule", *shape, "--svg", "-").stdout
        self.assertEqual(xml.etree.ElementTree.fromstring(printed).tag, "{http://www.w3.org/2000/svg}svg")
        self.assertFalse(os.path.exists("-"))
        together = (("--svg", "-", "--text", "-"), ("--json", "--svg", "-"), ("--json", "--text", "-"))
        for both in long_tests.some(together[:1], together, "other pairs"):
            self.assert_refused((*shape, *both), "--json, --svg - and --text - all write to standard output")
        path = self.order("0F0 0B0\n")
        self.assert_refused(("--order", path, "--text", path), "--text", "is also an input")
        self.assert_refused((*shape, "--text", path, "--svg", path), "--svg and --text both write")

    def test_bad_usage_is_2_with_what_to_do(self):
        shape = ("--stages", 2, "--chunks", 4)
        refused = ((("zb-h3", *shape), "'zb-h3'", "did you mean 'zb-h1'", "dualpipe-v"), ((), "--order FILE", "gpipe, 1f1b"),
                   (("zb-v", *shape, "--virtual", 3), "takes 2 stages per device, not 3"),
                   (("1f1b", *shape, "--forward", "1,2,3"), "--forward has 3 times for 2 devices"),
                   (("1f1b", *shape, "--backward", 1, "--input", 1, "--weight", 1), "--backward"),
                   (("1f1b", "--stages", 2), "--chunks"), (("1f1b", "--stages", 0, "--chunks", 4), "--stages"),
                   (("dualpipe-v", "--stages", 4, "--chunks", 7), "at least 8 chunks"),
                   (("1f1b", *shape, "--hop", -1), "--hop", "-1"), (("1f1b", *shape, "--forward", "nan"), "--forward", "nan"),
                   (("1f1b", *shape, "--overlap", 2), "--overlap"),
                   (("1f1b", "--stages", 1024, "--chunks", 65536), "actions"))
        for arguments, *parts in long_tests.some(refused[:5], refused, "one of each kind"):
            self.assert_refused(arguments, *parts)
        long = " ".join(f"0F{i % 10}" for i in range(2_000_001))
        self.assert_refused(("--order", self.order(long)), "order.txt has 2000001 actions, more than 2000000")

    def test_the_grid(self):
        done = cli.must_run("schedule", "1f1b", "--stages", 2, "--chunks", 2)
        self.assertIn("1f1b: 2 devices, 2 stages, 2 chunks\n"
                      "device 0 |0F0 0F1         0B0         0B1     |\n"
                      "device 1 |    1F0 1B0     1F1 1B1             |\n\n"
                      "makespan 9  bubble 33.33 %  barrier bubble 3  window bubble 3\n\n"
                      "device  busy  idle  idle %  in flight\n"
                      "0       6     3     33.33   2\n"
                      "1       6     3     33.33   1\n", done.stdout)
        self.assertEqual(done.stderr, "")

    @long_tests.only("two more starts")
    def test_numbers_are_not_cut_to_six_digits(self):
        printed = cli.must_run("schedule", "1f1b", "--stages", 2, "--chunks", 2, "--forward", 1234567).stdout
        self.assertIn("makespan 3703707  ", printed)
        self.assertIn("2469138", printed)
        found = schedule("zb-h2", "--stages", 8, "--chunks", 32, "--forward", 0.1, "--input", 0.1, "--weight", 0.1)
        self.assertEqual(found["window_bubble"], 0)

    def test_bytes(self):
        shape = ("1f1b", "--stages", 3, "--chunks", 8)
        found = schedule(*shape, "--activation-bytes", "1KiB", "--fixed-bytes", "100,200,300")
        self.assertEqual(found["peak_bytes"], [100 + 3 * 1024, 200 + 2 * 1024, 300 + 1024])
        self.assertEqual([key for key in found if key != "peak_bytes"], KEYS)
        # The stash is as large as the activation where it is not given: p are in flight until their W.
        split = ("zb-h1", "--stages", 3, "--chunks", 8, "--activation-bytes", 1000)
        self.assertEqual(schedule(*split)["peak_bytes"], [3000, 3000, 3000])
        self.assertEqual(schedule(*split, "--stash-bytes", 0)["peak_bytes"], [3000, 2000, 1000])
        printed = cli.must_run("schedule", *shape, "--activation-bytes", "1MiB").stdout
        self.assertIn("in flight  peak memory\n", printed)
        self.assertIn("3.0 MiB", printed)
        # All stages of a device together: two of them share.
        found = schedule("zb-v", "--stages", 2, "--chunks", 4, "--activation-bytes", 1000)
        self.assertEqual(found["peak_bytes"], [2000, 2000])
        self.assertEqual(schedule(*shape, "--activation-bytes", "1KiB", "--memory", "3KiB")["peak_bytes"][0], 3072)
        self.assert_refused((*shape, "--activation-bytes", "1KiB", "--memory", 3071),
                            "schedule '1f1b' needs 3.0 KiB on device 0", "fewer micro-batches in flight")
        refused = ((("--activation-bytes", "1KiB", "--memory", "8KiB,1KiB,8KiB"), "on device 1"),
                   (("--memory", "1GiB"), "--activation-bytes"),
                   (("--activation-bytes", "1,2"), "--activation-bytes has 2 sizes for 3 devices"),
                   (("--activation-bytes", "5TiB"), "at most 4.0 TiB"), (("--activation-bytes", "many"), "--activation-bytes"))
        for arguments, why in long_tests.some(refused[:1], refused, "one of each kind"):
            self.assert_refused((*shape, *arguments), why)

    def test_messages_take_bytes_over_bandwidth(self):
        shape = ("gpipe", "--stages", 2, "--chunks", 3)
        without = schedule(*shape)["makespan"]
        # One activation on the way to the last device and one gradient back; the others hide behind the computation.
        self.assertAlmostEqual(schedule(*shape, "--sent-bytes", 50, "--bandwidth", 100)["makespan"], without + 1)
        self.assertGreater(schedule(*shape, "--sent-bytes", "1KiB", "--bandwidth", 10)["makespan"], 6 * 102.4)
        self.assert_refused((*shape, "--sent-bytes", 50), "--bandwidth")
        self.assert_refused((*shape, "--bandwidth", 50), "--sent-bytes")
        numbers = (0, "nan", "1e-300")
        for bandwidth in long_tests.some(numbers[:1], numbers, "other numbers"):
            self.assert_refused((*shape, "--sent-bytes", 50, "--bandwidth", bandwidth), "--bandwidth")

    def test_colour_is_for_terminals_and_not_under_no_color(self):
        self.assertNotIn("\x1b", cli.must_run("schedule", "1f1b", "--stages", 2, "--chunks", 2).stdout)
        for no_color, expected in (("", True), ("1", False)):
            try:
                reader, writer = pty.openpty()
            except OSError:
                self.skipTest("no terminals here")
            subprocess.run([cli.BINARY, "schedule", "1f1b", "--stages", "2", "--chunks", "2"], stdout=writer, check=True,
                           env={**os.environ, "NO_COLOR": no_color})
            os.close(writer)
            self.assertEqual(b"\x1b[30;44m" in os.read(reader, 65536), expected)
            os.close(reader)

    def test_svg(self):
        path = self.folder / "picture.svg"
        done = cli.must_run("schedule", "zb-v", "--stages", 2, "--chunks", 4, "--svg", path)
        self.assertIn("makespan", done.stdout)
        root = xml.etree.ElementTree.parse(path).getroot()
        boxes = root.findall("{http://www.w3.org/2000/svg}g/{http://www.w3.org/2000/svg}rect")
        self.assertEqual(len(boxes), 4 * 4 * 3)
        done = cli.run("schedule", "zb-v", "--stages", 2, "--chunks", 4, "--svg", self.folder / "none" / "x.svg")
        self.assertEqual(done.returncode, 8)
        self.assertIn("x.svg: No such file or directory", cli.error_of(done))

    def test_the_largest_shape_that_is_promised(self):
        bubbles = (("zb-v", 31.5), ("interleaved", 63 * 3 / 2), ("dualpipe-v", 63))
        for name, bubble in long_tests.some(bubbles[:1], bubbles, "each takes a second"):
            found = schedule(name, "--stages", 64, "--chunks", 512)
            self.assertAlmostEqual(found["barrier_bubble"], bubble, places=6)

    def test_training_runs_them_all(self):
        config = cli.write_config(self.folder / "run.toml", model={"name": "resnet8", "image_size": 8},
                                  data={"name": "shapes", "samples": 64}, train={"steps": 2, "global_batch": 16},
                                  pipeline={"stages": 2, "chunks": 4}, device={"list": "cpu"})
        for name in long_tests.some(NAMES[8:], NAMES, "tests/engine trains them all"):
            cli.must_run("train", config, "--set", f'pipeline.schedule="{name}"', "--run-dir", self.folder / name)
            self.assertEqual(len(cli.events(self.folder / name, "step")), 2)

    def test_training_refuses_numbers_that_a_schedule_does_not_have(self):
        config = cli.write_config(self.folder / "run.toml", model={"name": "mlp", "image_size": 8},
                                  data={"name": "shapes", "samples": 64}, train={"steps": 2, "global_batch": 16},
                                  pipeline={"stages": 2, "chunks": 3, "schedule": "dualpipe-v"}, device={"list": "cpu"})
        refused = (([], "needs at least 4 chunks"), (["pipeline.chunks=4"], "4 stages (pipeline.stages x pipeline.virtual)"),
                   (["pipeline.chunks=4", "pipeline.virtual=3"], "takes 2 stages per device, not 3"))
        for settings, why in long_tests.some(refused[:1], refused, "one of each kind"):
            done = cli.run("train", config, *[word for setting in settings for word in ("--set", setting)],
                           "--run-dir", self.folder / "refused")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(why, cli.error_of(done))


if __name__ == "__main__":
    unittest.main()
