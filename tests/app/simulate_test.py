#!/usr/bin/env python3
"""sluice simulate --sync: uneven workers in virtual time beside closed forms and another generator.

    simulate_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import json
import math
import random
import unittest

import long_tests
import sluice_cli as cli

EC2 = {"workers": 10, "base-batch": 242, "seconds-per-example": 0.02236, "induce": "ec2", "steps": 4000}
EVEN = {"workers": 4, "base-batch": 100, "seconds-per-example": 0.01, "steps": 50}
EXACT = 1e-12  # up to the rounding of nanoseconds to seconds


def words(options):
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def simulate(sync, options, **more):
    return json.loads(cli.must_run("simulate", "--sync", sync, *words({**options, **more}), "--json").stdout)


def anytime(options, limit, partitions, **more):
    return simulate("amb", {**options, **more, "amb-time-limit": limit, "partitions": partitions})


class SimulateTest(unittest.TestCase):
    def assert_near(self, found, wanted, share):
        self.assertLessEqual(abs(found - wanted), share * abs(wanted), (found, wanted))

    def test_even_workers_are_arithmetic(self):
        for sync in ("fmb", "bsp", "quorum"):
            found = simulate(sync, EVEN, **({"quorum": 4} if sync == "quorum" else {}))
            for name, wanted in (("step_s_mean", 1), ("slowest_worker_s_mean", 1), ("examples_per_worker_mean", 100), ("steps_per_s", 1), ("examples_per_s", 400)):
                self.assert_near(found[name], wanted, EXACT)
            self.assertEqual(found["staleness"], {"0": 200})
            self.assertEqual({name: found[name] for name in ("sync", "workers", "base_batch", "seconds_per_example", "steps")},
                             {"sync": sync, "workers": 4, "base_batch": 100, "seconds_per_example": [0.01], "steps": 50}, "what was asked for")
        found = anytime(EVEN, 0.55, 7)  # slices of 14: those that begin at 0, 0.14, 0.28, 0.42
        self.assertEqual(found["examples_per_worker_mean"], 56)
        self.assert_near(found["step_s_mean"], 0.56, EXACT)
        found = anytime(EVEN, 0.42, 7)
        self.assertEqual(found["examples_per_worker_mean"], 42, "none begins at the limit")
        self.assert_near(found["step_s_mean"], 0.42, EXACT)
        found = simulate("asp", EVEN, steps=4000)
        self.assert_near(found["steps_per_s"], 4, 1e-3)

    def test_each_worker_may_have_a_speed_of_its_own(self):
        speeds = (0.01, 0.02, 0.05, 0.1)
        options = {**EVEN, "seconds-per-example": ",".join(map(str, speeds))}
        self.assert_near(simulate("fmb", options)["step_s_mean"], 10, EXACT)
        self.assert_near(simulate("asp", options, steps=20000)["steps_per_s"], sum(1 / (100 * s) for s in speeds), 1e-3)
        self.assert_near(simulate("ssp", options, steps=20000, staleness=2)["steps_per_s"], 4 / 10, 1e-2)

    def test_the_slowest_of_n_exponentials(self):
        options = {**EVEN, "induce": "shifted-exponential", "shift": 0.5, "mean": 2, "steps": 20000}
        for workers in long_tests.some((8,), (1, 2, 8, 64), "numbers of workers"):
            mean = 1 + 0.5 + 2 * sum(1 / i for i in range(1, workers + 1))
            deviation = 2 * math.sqrt(sum(1 / i ** 2 for i in range(1, workers + 1)) / options["steps"])
            self.assertLess(abs(simulate("fmb", options, workers=workers)["step_s_mean"] - mean), 4 * deviation, workers)

    def test_ec2_beside_another_generator_and_the_recorded_runs(self):
        draw = random.Random(3)

        def stall():
            mean, deviation = draw.choices(((0, 0), (0, 0.4), (2, 0.3), (5, 0.3)), (0.4, 0.3, 0.2, 0.1))[0]
            return min(6.5, abs(draw.gauss(mean, deviation)))

        slice_s, steps = 22 * EC2["seconds-per-example"], EC2["steps"]
        stalls = [[stall() for _ in range(10)] for _ in range(steps)]
        slices = [min(16, max(1, math.ceil((6.2 - s) / slice_s))) for step in stalls for s in step]
        fmb, amb = simulate("fmb", EC2), anytime(EC2, 6.2, 16, **{"base-batch": 356})
        self.assert_near(fmb["step_s_mean"], 242 * EC2["seconds-per-example"] + sum(map(max, stalls)) / steps, 0.01)
        self.assert_near(amb["examples_per_worker_mean"], 22 * sum(slices) / len(slices), 0.01)
        self.assert_near(fmb["slowest_worker_s_mean"], 9.44, 0.01)
        self.assert_near(amb["examples_per_worker_mean"], 243.1, 0.01)
        self.assertEqual((amb["examples_per_worker_least"], amb["examples_per_worker_most"]), (22, 286))
        self.assert_near(amb["steps_per_s"] / fmb["steps_per_s"], 1.39, 0.05)

    def test_a_seed_repeats(self):
        first = simulate("asp", EC2, seed=5)
        self.assertEqual(first, simulate("asp", EC2, seed=5))
        self.assertNotEqual(first["virtual_s"], simulate("asp", EC2, seed=6)["virtual_s"])
        self.assertEqual(sum(first["staleness"].values()), first["pushes"])

    def test_the_table(self):
        text = cli.must_run("simulate", "--sync", "fmb", *words(EVEN)).stdout
        self.assertIn("fmb, 4 workers, base batch 100, stragglers none, seed 0: 50 updates in 50.000 virtual s", text)
        for line in ("updates a second +1.0000", "examples a second +400.00", "examples of a push, mean +100.00", " +0 +200 +100 %"):
            self.assertRegex(text, line)

    def test_what_does_not_go_together_is_refused(self):
        for sync, change, sentence in (
                ("amb", {"partitions": 4}, "give --amb-time-limit"), ("amb", {"amb-time-limit": 1}, "--partitions"),
                ("amb", {"amb-time-limit": 0, "partitions": 4}, "give seconds above 0"), ("amb", {"amb-time-limit": 1, "partitions": 101}, "at most 100"),
                ("fmb", {"amb-time-limit": 1}, "--sync amb"), ("asp", {"staleness": 1}, "--sync ssp"),
                ("quorum", {"quorum": 5}, "give 1 to 4"), ("fmb", {"seconds-per-example": "nan"}, "finite numbers above 0"),
                ("fmb", {"steps": 0}, "--steps is 0"), ("fbm", {}, "did you mean 'fmb'?"), ("fmb", {"mean": 1}, "--induce shifted-exponential")):
            self.refuse(["--sync", sync, *words({**EVEN, **change})], sentence)
        self.refuse(["--sync", "fmb", "--workers", "3"], "--seconds-per-example")
        self.refuse(["--sync", "fmb", *words(EVEN), "--seed", "-1"], "--seed")
        self.refuse(["--sync", "fmb", *words({**EVEN, "seconds-per-example": ""})], "--seconds-per-example: must not be empty")
        self.refuse(["run.toml"], "simulate needs --profile FILE")
        self.refuse(["run.toml", "--sync", "fmb", *words(EVEN)], "remove CONFIG")

    def refuse(self, arguments, sentence):
        done = cli.run("simulate", *arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
        self.assertIn(sentence, cli.error_of(done))


if __name__ == "__main__":
    unittest.main()
