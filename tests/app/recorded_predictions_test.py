#!/usr/bin/env python3
"""Predicted against measured steps, of profiles and runs that were recorded on a quiet machine (bench/prediction.py --keep),
so that a change of the predictor that makes it worse is seen.

    recorded_predictions_test.py [unittest options]        SLUICE_BINARY names the binary

recorded/MODEL.json is the profile, MODEL.toml the configuration, steps.json what the plans took.
"""

import itertools
import json
import pathlib
import statistics
import unittest

import long_tests
import sluice_cli as cli

RECORDED = pathlib.Path(__file__).resolve().parent / "recorded"
LEAST_ORDERED = 0.95  # of the pairs whose measured times differ by more than their spreads


class Plan:
    def __init__(self, record):
        self.record = record
        runs = record["runs_s"]
        self.measured = statistics.median(runs)
        self.spread = (max(runs) - min(runs)) / 2 / self.measured
        stages, replicas, chunks, schedule = record["plan"]
        values = {"pipeline.stages": stages, "replicas.local": replicas, "pipeline.chunks": chunks,
                  "pipeline.schedule": schedule, "pipeline.partition": record["partition"]}
        model = RECORDED / record["model"]
        done = cli.must_run("simulate", model.with_suffix(".toml"), "--profile", model.with_suffix(".json"), "--json",
                            *(word for key, value in values.items() for word in ("--set", f"{key}={value}")))
        self.answer = json.loads(done.stdout)
        self.seconds = self.answer["step_s"] * record["drift"]  # of the machine between the profile and the runs
        self.error = self.seconds / self.measured - 1

    def bound(self):
        return max(0.05, 2 * self.spread)


class RecordedPredictionsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        records = json.loads((RECORDED / "steps.json").read_text(encoding="utf-8"))
        in_ci = [record for record in records if record["model"] != "vgg16"]
        cls.plans = [Plan(record) for record in long_tests.some(in_ci, records, "three of four models")]

    def test_the_errors_are_what_they_were(self):
        for plan in self.plans:
            with self.subTest(plan=plan.record["plan"], model=plan.record["model"]):
                self.assertLessEqual(abs(plan.error), max(plan.bound(), abs(plan.record["error"]) + 0.005))

    def test_most_plans_are_predicted_within_their_bounds(self):
        self.assertGreaterEqual(sum(abs(plan.error) <= plan.bound() for plan in self.plans), 0.9 * len(self.plans))

    def test_the_order_is_right(self):
        right = counted = 0
        for a, b in itertools.combinations(self.plans, 2):
            far = abs(a.measured - b.measured) > a.spread * a.measured + b.spread * b.measured
            if a.record["model"] != b.record["model"] or not far:
                continue
            counted += 1
            right += (a.measured < b.measured) == (a.seconds < b.seconds)
        self.assertGreater(counted, 100)
        self.assertGreaterEqual(right / counted, LEAST_ORDERED)

    def test_memory_is_predicted_within_a_tenth(self):
        errors = {}
        for plan in self.plans:
            most = max(device["bytes"] for device in plan.answer["devices"])
            errors[(plan.record["model"], *plan.record["plan"])] = most / plan.record["peak_bytes"] - 1
        self.assertEqual({plan: error for plan, error in errors.items() if abs(error) > 0.1}, {})
        self.assertGreater(min(errors.values()), -0.02, "never under by more than what an allocator rounds")


class MoreDevicesThanCoresTest(unittest.TestCase):
    """The profiles are of two cores, with one thread a device: more of them compute no more in a second than two."""

    def predicted(self, model, **values):
        values = {"train.global_batch": 32, "data.workers": 0, "pipeline.chunks": 4, **{key.replace("__", "."): value for key, value in values.items()}}
        done = cli.must_run("simulate", RECORDED / f"{model}.toml", "--profile", RECORDED / f"{model}.json", "--json",
                            *(word for key, value in values.items() for word in ("--set", f"{key}={value}")))
        return json.loads(done.stdout)

    def test_replicas_share_the_cores(self):
        computes = {n: self.predicted("vit", replicas__local=n, train__global_batch=32 * n)["devices"][0]["compute_s"] for n in (1, 2, 4, 8)}
        self.assertLess(computes[1], computes[2], "two slow each other down")
        for n in (4, 8):
            self.assertAlmostEqual(computes[n] / computes[2], n / 2, delta=1e-9)

    def test_no_pipeline_does_more_than_the_cores(self):
        for model in long_tests.some(("vit",), ("vit", "gpt2"), "one more model"):
            work = self.predicted(model)["devices"][0]["compute_s"]
            shapes = list(itertools.product((2, 3, 4), ("gpipe", "1f1b")))
            for stages, schedule in long_tests.some(shapes[1::2], shapes, "gpipe"):
                step = self.predicted(model, pipeline__stages=stages, pipeline__schedule=schedule)
                self.assertGreaterEqual(step["step_s"], work / 2, (model, stages, schedule))
                for device in step["devices"]:
                    self.assertLessEqual(device["compute_s"], step["step_s"])


if __name__ == "__main__":
    unittest.main()
