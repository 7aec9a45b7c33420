#!/usr/bin/env python3
"""sluice batch-plan beside exact fractions.

    batch_plan_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import json
import pathlib
import random
import tempfile
import unittest
from fractions import Fraction
from math import floor

import long_tests
import sluice_cli as cli

WORKED = {"workers": 5, "base-batch": 1000, "samples": 50000, "extra-time": "1.05", "a": "0.00022595", "b": "0.006233854698278141"}


def words(options):
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def plan(options, *more):
    return json.loads(cli.must_run("batch-plan", *words(options), "--json", *more).stdout)["plans"]


def expected(options, small):
    """(small batch, samples of a small worker, samples of a large one) with no rounding but the last."""
    workers, batch, samples = options["workers"], options["base-batch"], options["samples"]
    k, a, b = (Fraction(str(options[name])) for name in ("extra-time", "a", "b"))
    share = floor(k * samples / workers)
    own = (samples - share * (workers - small)) // small
    left = k * (a + b / batch) * Fraction(samples, workers) / own - a
    return floor(b / left), own, share if small < workers else 0


class BatchPlanTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def test_the_worked_case(self):
        plans = plan(WORKED, "--force")
        self.assertEqual([row["small_batch"] for row in plans], [0, 79, 165, 237, 297, 349])
        self.assertEqual([round(row["factor"], 4) for row in plans[1:]], [0.7619, 0.881, 0.9206, 0.9405, 0.9524])
        self.assertEqual(plan(WORKED, "--small", "3")[0]["small_batch"], 237)
        text = cli.must_run("batch-plan", *words(WORKED)).stdout
        self.assertIn("all 5 workers with batches of 1000: 2.322 s an epoch", text)

    def test_sizes_are_rounded_down_exactly(self):
        draw = random.Random(7)
        for _ in long_tests.some(range(4), range(12), "seeded draws"):
            options = {"workers": draw.randint(2, 16), "base-batch": draw.randint(100, 2000), "samples": draw.randint(5000, 60000),
                       "extra-time": f"1.0{draw.randint(1, 5)}", "a": f"0.000{draw.randint(1000, 99999)}", "b": f"0.0{draw.randint(10000, 999999)}"}
            for row in plan(options, "--force")[1:]:
                found = tuple(row.get(name) for name in ("small_batch", "small_samples", "large_samples"))
                wanted = expected(options, row["small_workers"])
                self.assertEqual(found, wanted if wanted[0] >= 1 else (None, None, None), (options, row))

    def test_a_batch_that_is_too_small_is_refused_or_gets_a_lower_rate(self):
        tight = {**WORKED, "small": 1, "extra-time": "1.1"}
        done = cli.run("batch-plan", *words(tight))
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("the small batch would be", cli.error_of(done))
        self.assertIn("--force plans it all the same", cli.error_of(done))
        batch = expected(tight, 1)[0]
        self.assertEqual(plan(tight, "--force")[0]["small_lr_factor"], batch / 1000)
        self.assertIn(f"a batch of {batch} needs a lower rate: train.lr x 0.0", cli.must_run("batch-plan", *words(tight), "--force").stdout)

    def test_a_table_tells_which_numbers_do_not_work(self):
        rows = plan({**WORKED, "extra-time": "1.1"})
        self.assertIn("below 40", rows[1]["refused"])
        self.assertEqual([row["small_batch"] for row in rows[2:]], [expected({**WORKED, "extra-time": "1.1"}, small)[0] for small in range(2, 6)])
        self.assertIn("\n1 small: the small batch would be 31", cli.must_run("batch-plan", *words({**WORKED, "extra-time": "1.1"})).stdout)

    def test_costs_of_a_profile(self):
        """a and b are the sums over its layers as whole steps have them, b with the update of their weights; small workers may have a profile of their own."""
        config = cli.write_config(self.folder / "run.toml", device={"list": "cpu"}, model={"name": "mlp"}, data={"name": "shapes", "samples": 200},
                                  train={"global_batch": 32}, profile={"steps": 1})
        file = self.folder / "profile.json"
        cli.must_run("profile", config, "--out", file)
        profile = json.loads(file.read_text())
        parts = [layer[name] for layer in profile["layers"] for name in ("forward", "input_gradient", "weight_gradient")]
        scale = profile["step"]["compute_s"] / profile["step"]["predicted_compute_s"]
        a, b = (scale * sum(part[name] for part in parts) for name in ("b_s", "a_s"))
        b += profile["update"]["a_s"] + profile["update"]["b_s"] * sum(layer["parameter_bytes"] for layer in profile["layers"])
        asked = {"workers": 4, "base-batch": 500, "samples": 20000, "extra-time": "1.05"}

        def epoch_s(rows):
            return [row["base_epoch_s"] for row in rows]

        by_profile = plan({**asked, "profile": file}, "--force")
        by_numbers = plan({**asked, "a": f"{a:.5e}", "b": f"{b:.5e}"}, "--force")
        self.assertEqual(by_profile, by_numbers)
        self.assertAlmostEqual(epoch_s(by_profile)[0], (a + b / 500) * 5000, delta=1e-4 * (a + b / 500) * 5000)
        # Small workers of twice the cost a sample: b / (k (a + b / B) D / n / d - 2 a), where that is a batch.
        for part in parts:
            part["b_s"] *= 2
        slow = self.folder / "slow.json"
        slow.write_text(json.dumps(profile))
        a, b, slow_a = (Fraction(f"{value:.5e}") for value in (a, b, 2 * a))
        found = plan({**asked, "extra-time": "2", "profile": file, "small-profile": slow, "small": 4}, "--force")[0]
        self.assertEqual(found["small_samples"], 5000)
        self.assertEqual(found["small_batch"], floor(b / (2 * (a + b / 500) - slow_a)))

    def test_what_is_no_plan_is_refused(self):
        refused = (({"a": "fast"}, "--a = 'fast' is not a number"), ({"extra-time": "0.9"}, "less than 1"),
                   ({"small": 6}, "more than --workers 5"), ({"b": "0"}, "--b must be above 0"), ({"profile": "none.json"}, "give either --a and --b"),
                   ({"extra-time": "1.25", "small": 1}, "take all 50000 samples"), ({"workers": 0}, "--workers"))
        for change, sentence in long_tests.some(refused[::3], refused, "one of three"):
            done = cli.run("batch-plan", *words({**WORKED, **change}))
            self.assertEqual((done.returncode, done.stdout), (2, ""), change)
            self.assertIn(sentence, cli.error_of(done))


if __name__ == "__main__":
    unittest.main()
