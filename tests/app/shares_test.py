#!/usr/bin/env python3
"""replicas.shares: uneven shares of a batch train as equal ones do, and measured ones follow the speed of each process.

The model's layers sleep (tests/support/slow_layers.cpp): a test says how fast each process is. SLUICE_SLOW_LAYERS names
that binary.

    shares_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import os
import pathlib
import tempfile
import unittest

import long_tests
import sluice_cli as cli

STEPS = 50
QUICK, SLOW = "1,1,1,1", "2,2,2,2"  # ms of the layers' forward


def sleeping(forward):
    return {"SLEEP_FORWARD_MS": forward, "SLEEP_BACKWARD_MS": forward}


class SharesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.addClassCleanup(setattr, cli, "BINARY", cli.BINARY)
        cli.BINARY = os.environ["SLUICE_SLOW_LAYERS"]
        cls.config = cli.write_config(
            cls.folder / "run.toml", model={"name": "sleepers", "image_size": 8},
            data={"name": "shapes", "samples": 240}, device={"list": "cpu", "threads": 1},
            train={"steps": STEPS, "global_batch": 24, "lr": 0.01, "eval_batch": 16, "seed": 3},
            log={"digest_every": 1, "tensorboard": False}, checkpoint={"every_steps": 0})

    def one_process(self, name, *options):
        run = self.folder / name
        cli.must_run("train", self.config, *options, "--run-dir", run)
        return run

    def ranks(self, name, forwards, *options):
        return cli.start_ranks(len(forwards), "train", self.config, *options, "--run-dir", self.folder / name,
                               environments_of={rank: sleeping(forward) for rank, forward in enumerate(forwards)})

    def train(self, name, forwards, *options):
        for rank, done in enumerate(cli.finish_all(self.ranks(name, forwards, *options))):
            self.assertEqual(done.returncode, 0, f"rank {rank}: {done.stderr[-3000:]}")
        return self.folder / name

    def assert_same_bits(self, run, reference):
        compared = cli.run("compare", reference, run, "--json")
        self.assertEqual(compared.returncode, 0, compared.stdout + compared.stderr)

    LAYOUT = cli.options(train={"micro_batch": 2, "reproducible": "layout"})
    MEASURED = cli.options(replicas={"shares": "measured"})

    def test_measured_shares_follow_the_speeds_without_a_change_of_bits(self):
        run = self.train("measured", [SLOW, QUICK], *self.LAYOUT, *self.MEASURED)
        changes = cli.events(run, "replan")
        self.assertIn(changes[-1]["shares"], ([4, 8], [5, 7], [3, 9]), changes)  # on a busy machine
        self.assertEqual((changes[0]["step"], changes[0]["shares_before"]), (20, [1, 1]))
        self.assertLess(changes[0]["predicted_ms"], changes[0]["measured_before_ms"])
        self.assertIsNotNone(changes[0]["measured_ms"])
        # 48 ms of sleep instead of 32.
        self.assertLess(changes[0]["measured_ms"], changes[0]["measured_before_ms"])
        self.assert_same_bits(run, self.one_process("one", *self.LAYOUT))

    @long_tests.only("20 s")
    def test_a_much_too_slow_process_gets_no_share(self):
        layout = cli.options(train={"micro_batch": 4, "reproducible": "layout"})
        plain = cli.options(pipeline={"chunks": 2}, train={"clip_norm": 0.5, "global_batch": 8})
        for name, options, slow in [("layout", layout, "25,25,25,25"), ("plain", plain, "30,30,30,30")]:
            with self.subTest(name):
                run = self.train(f"hopeless-{name}", [slow, QUICK], *options, *self.MEASURED)
                changes = cli.events(run, "replan")
                self.assertEqual(changes[-1]["shares"][0], 0, changes)
                reference = self.one_process(f"hopeless-one-{name}", *options)
                for ours, theirs in zip(cli.events(run, "step"), cli.events(reference, "step"), strict=True):
                    self.assertAlmostEqual(ours["loss"], theirs["loss"], delta=1e-5, msg=ours["step"])
                if name == "layout":
                    self.assert_same_bits(run, reference)

    def test_without_a_fixed_micro_batch_shares_are_finer(self):
        run = self.train("plain", [QUICK, SLOW], *self.MEASURED, *cli.options(pipeline={"chunks": 6}))
        changes = cli.events(run, "replan")
        quick, slow = changes[-1]["shares"]
        self.assertEqual(quick + slow, 24, changes)
        self.assertIn(slow, (7, 8, 9), changes)
        plain = self.one_process("plain-one", *cli.options(pipeline={"chunks": 12}))
        for ours, theirs in zip(cli.events(run, "step"), cli.events(plain, "step"), strict=True):
            self.assertAlmostEqual(ours["loss"], theirs["loss"], delta=1e-5, msg=ours["step"])
        self.assertEqual([event["samples"] for event in cli.events(run, "eval")],
                         [event["samples"] for event in cli.events(plain, "eval")])

    def test_equal_speeds_stay_as_they_are(self):
        run = self.train("even", [QUICK, QUICK], *self.LAYOUT, *self.MEASURED)
        self.assertEqual(cli.events(run, "replan"), [])

    def test_a_list_is_taken_as_it_is(self):
        run = self.train("list", ["", "", ""], *self.LAYOUT, *cli.options(replicas={"shares": [1, 3, 2]}))
        self.assertEqual(cli.events(run, "plan")[0]["shares"], [1, 3, 2])
        self.assertIn("shares 17 % 50 % 33 %", (run / "log.txt").read_text())
        self.assert_same_bits(run, self.one_process("list-one", *self.LAYOUT))

    def test_a_short_batch_may_leave_the_first_replicas_without_samples(self):
        short = [*self.LAYOUT, *cli.options(data={"samples": 76}, train={"clip_norm": 0.5})]  # every fourth batch has 4 samples
        reference = self.one_process("short-one", *short)
        layouts = [(2, [1, 5, 5, 1]), (1, [1, 1, 4]), (1, [1, 3]), (2, [1, 3, 1, 3])]
        for number, (processes, shares) in enumerate(long_tests.some(layouts[:2], layouts, "5 s each")):
            with self.subTest(processes=processes, shares=shares):
                options = cli.options(replicas={"local": len(shares) // processes, "shares": shares})
                name = f"short-{number}"
                run = self.train(name, [""] * processes, *short, *options) if processes > 1 else self.one_process(name, *short, *options)
                self.assert_same_bits(run, reference)

    def test_a_lost_process_ends_its_share(self):
        run, steps = self.folder / "lost", 100
        options = [*self.LAYOUT, *self.MEASURED, *cli.options(replicas={"elastic": True}, train={"steps": steps})]
        processes = self.ranks("lost", [QUICK, SLOW, QUICK], *options)
        cli.wait_for(lambda: cli.events(run, "transition"), "shares are changed")
        processes[2].kill()
        for rank, done in enumerate(cli.finish_all(processes)):
            self.assertEqual(done.returncode, -9 if rank == 2 else 0, f"rank {rank}: {done.stderr[-3000:]}")
        self.assertEqual(len(cli.events(run, "lost")), 1)
        changes = [change for change in cli.events(run, "replan") if len(change["shares_before"]) == 2]
        self.assertEqual(changes[0]["shares_before"], [1, 1], changes)
        self.assertIn(changes[-1]["shares"], ([8, 4], [7, 5], [9, 3]), changes)  # on a busy machine
        self.assert_same_bits(run, self.one_process("lost-one", *self.LAYOUT, *cli.options(train={"steps": steps})))

    def test_what_does_not_suit_is_refused(self):
        refused = {
            "list, but": ({"shares": [1, 2]}, {}, "replicas.shares has 2 shares, but the run has 1 replica"),
            "none": ({"shares": [1, 100], "local": 2}, {}, "gives replica 0 no sample of a batch of 24 samples"),
            "zero": ({"shares": [1, 0]}, {}, "replicas.shares = [1, 0] is out of range; it must be 1 to 1000000"),
            "empty": ({"shares": []}, {}, "or a list with one integer per replica"),
            "word": ({"shares": "fast"}, {}, 'one of "equal", "measured"'),
            "change": ({"shares": [1, 2], "local": 2}, {"pipeline": {"changes": ["4: replicas = 3"]}}, "after step 4: replicas.shares has 2"),
            "elastic": ({"shares": [1, 2], "elastic": True}, {}, "the number of processes changes"),
            "freeze": ({"shares": [1, 2], "local": 2}, {"freeze": {"policy": "linear"}, "pipeline": {"stages": 2}}, "freeze.replicas"),
            "norm": ({"shares": "measured"}, {"pipeline": {"batch_norm": "sync"}}, "pipeline.batch_norm"),
            "times": ({"shares": "measured"}, {"profile": {"level": "off"}}, "profile.level"),
            "exact": ({"shares": "measured"}, {"train": {"deterministic": True}}, "train.reproducible"),
        }
        for name, (replicas, tables, said) in refused.items():
            with self.subTest(name):
                done = cli.run("train", self.config, *cli.options(replicas=replicas, **tables), "--run-dir", self.folder / "refused")
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(said, cli.error_of(done))
                self.assertFalse((self.folder / "refused").exists())

    def test_tune_chooses_the_number_of_replicas(self):
        done = cli.run("tune", self.config, *cli.options(replicas={"shares": [1, 2], "local": 2}))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("sluice tune chooses the number of replicas", cli.error_of(done))


if __name__ == "__main__":
    unittest.main()
