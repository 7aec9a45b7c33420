#!/usr/bin/env python3
"""scripts/experiments: which runs an experiment plans, in which order, and what it makes of their rows. Nothing is run here."""

import json
import pathlib
import sys
import tempfile
import types
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "scripts"))

from experiments import (  # noqa: E402
    anytime, arguments, batch_norm_slicing, communication, dual_batch, elastic_freeze, elastic_report, fashion_split, lr_sweep, partitions, pipe_report, pipe_vs_ddp,
    record, runner, runs, single_dp_ddp, two_nodes)


def options_of(experiment, scale, **more):
    given = {"data": None, "weights": None, "pretrain": None, "arms": ["none", "freeze", "elastic"], "samples": 4000, "frozen_batches": [64, 320]}
    return types.SimpleNamespace(**{**experiment.SCALES[scale], "scale": scale, **given, **more})


def tuned(arm, seed, steps_s, top1, changes_s=0.0):
    return {"run": f"{arm}-seed{seed}", "arm": arm, "seed": seed, "steps_s": steps_s, "changes_s": changes_s, "epoch_s": steps_s / 5, "top1": top1,
            "wall_s": 10 + steps_s + changes_s}


def assert_refuses_a_set(test, measure, planned, events, options, sentence):
    with test.assertRaises(runs.RunFailed) as refused:
        measure(planned, events, options)
    test.assertEqual(refused.exception.code, runs.BAD_USE)
    test.assertTrue(str(refused.exception).startswith(f"{planned.label} {sentence}"), refused.exception)


class MeasuredEventsTest(unittest.TestCase):
    """Measurements are useless if a --set of the user replaces one of the experiment."""

    def test_what_is_there_is_handed_over_in_order(self):
        planned = runs.Planned(name="a", kind="a", sets={})
        events = [{"event": name, "n": n} for n, name in enumerate(("plan", "step", "step", "eval", "step", "eval", "epoch", "summary"))]
        for found, expected in ((runs.steps_after(planned, events, 0), [1, 2, 4]), (runs.steps_after(planned, events, 2), [4]),
                                (runs.evaluations_of(planned, events), [3, 5]), (runs.epochs_of(planned, events), [6])):
            self.assertEqual([event["n"] for event in found], expected)

    def test_a_set_that_takes_steps_away_is_refused(self):
        planned = runs.Planned(name="a", kind="all-reduce", sets={}, title="the first run")
        two = [{"event": "step"}] * 2
        for experiment, warmup in ((single_dp_ddp, 2), (partitions, 2), (pipe_vs_ddp, 2), (communication, communication.WARMUP)):
            options = types.SimpleNamespace(warmup=2, epochs=None)
            with self.subTest(experiment=experiment.__name__):
                assert_refuses_a_set(self, experiment.measure, planned, two[:warmup], options,
                                     f"made no step after the {warmup} of warm-up ({len(two[:warmup])} in all): leave train.steps")
        for experiment in (two_nodes, batch_norm_slicing, dual_batch, elastic_freeze, anytime):
            with self.subTest(experiment=experiment.__name__):
                assert_refuses_a_set(self, experiment.measure, planned, [{"event": "eval", "step": 1, "top1": 1.0}], types.SimpleNamespace(),
                                     "made no step after the 0 of warm-up")

    def test_a_set_that_takes_evaluations_or_epochs_away_is_refused(self):
        planned = runs.Planned(name="a", kind="a", sets={}, title="the first run")
        step = {"event": "step", "step": 1, "step_ms": 1.0, "samples": 1, "top1": 1.0, "virtual_s": 1.0}
        for experiment in (two_nodes, lr_sweep, single_dp_ddp, batch_norm_slicing, dual_batch, elastic_freeze):
            with self.subTest(experiment=experiment.__name__):
                assert_refuses_a_set(self, experiment.measure, planned, [step], types.SimpleNamespace(warmup=0, epochs=1), "was never evaluated")
        assert_refuses_a_set(self, lr_sweep.measure, planned, [step, {"event": "eval"}], types.SimpleNamespace(),
                             "came to the end of no epoch: leave train.steps")


class StatisticsTest(unittest.TestCase):
    def test_the_interval_is_students(self):
        mean, half_width = arguments.mean_and_half_width([1.0, 2.0, 3.0, 4.0, 5.0])
        self.assertAlmostEqual(mean, 3.0)
        self.assertAlmostEqual(half_width, 2.776 * 2.5**0.5 / 5**0.5)
        self.assertEqual(arguments.mean_and_half_width([7.0]), (7.0, None))
        self.assertEqual([arguments.t95(degrees) for degrees in (1, 2, 10, 30, 31, 1000)], [12.706, 4.303, 2.228, 2.042, 2.042, 2.042])

    def test_the_rest_is_estimated_by_kind(self):
        plan = [runs.Planned(name=f"{kind}{number}", kind=kind, sets={}) for number in (1, 2) for kind in ("a", "b")]
        rows = [{"run": "a1", "wall_s": 60.0}, {"run": "b1", "wall_s": 5.0}]
        self.assertEqual(runner.time_left(plan[2:], rows, plan), " (about 1 min 5 s left)")
        self.assertEqual(runner.time_left(plan, [], plan), "")


class ElasticTest(unittest.TestCase):
    def test_every_arm_has_every_place(self):
        plan = elastic_freeze.plan(options_of(elastic_freeze, "small", seeds=3))
        self.assertEqual([run.name for run in plan], [
            "pretrain", "none-seed1", "freeze-seed1", "elastic-seed1", "freeze-seed2", "elastic-seed2", "none-seed2", "elastic-seed3", "none-seed3",
            "freeze-seed3", "frozen-batch64", "frozen-batch320"])

    def test_arms_differ_in_freezing_alone(self):
        plan = elastic_freeze.plan(options_of(elastic_freeze, "small", seeds=1, arms=list(elastic_freeze.ARMS)))
        of_arms = [run.sets for run in plan if run.columns["arm"] in elastic_freeze.ARMS]
        rest = [{key: value for key, value in sets.items() if not key.startswith("freeze.")} for sets in of_arms]
        self.assertEqual(rest, [rest[0]] * 5)
        self.assertEqual(plan[0].sets["train.steps"], 1690)
        self.assertEqual(rest[0]["model.weights"], "{out}/pretrain/run/checkpoints/step-1690/model.safetensors")

    def test_factors_and_differences_are_of_pairs(self):
        rows = [tuned("none", 1, 10.0, 90.0), tuned("freeze", 1, 4.0, 89.0, changes_s=1.0), tuned("none", 2, 30.0, 92.0), tuned("freeze", 2, 10.0, 92.0)]
        row = elastic_report.arm_row("freeze", elastic_report.of_arm(rows, "freeze"), elastic_report.of_arm(rows, "none"))
        self.assertEqual([row[name] for name in ("x", "x_min", "x_max", "x_published", "difference")], [2.5, 2.0, 3.0, 0.95, -0.5])
        self.assertEqual((row["x_inconclusive"], row["difference_inconclusive"]), (False, True))
        self.assertAlmostEqual(row["x_whole"], (20 / 15 + 40 / 20) / 2)
        self.assertAlmostEqual(row["half_width"], 12.706 * 0.5)

    def test_a_change_has_the_step_that_was_measured_under_it(self):
        plan = {"stages": 1, "replicas": 2, "frozen_layers": 4}
        events = [{"event": "transition", "step": 4, "to": plan, "seconds": 0.1, "measured_before_ms": 30.0, "predicted_ms": 8.0},
                  {"event": "transition", "step": 8, "to": plan, "seconds": 0.2, "measured_before_ms": 10.0, "predicted_ms": 6.0},
                  {"event": "summary", "step_ms_of_last_plan": 5.0}]
        with tempfile.TemporaryDirectory() as folder:
            run = pathlib.Path(folder) / "elastic-seed1" / "run"
            run.mkdir(parents=True)
            (run / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
            changes = elastic_report.changes_of({"run": "elastic-seed1"}, types.SimpleNamespace(out=pathlib.Path(folder)))
        self.assertEqual([(change["predicted_ms"], change["measured_ms"], round(change["error"], 6)) for change in changes], [(8.0, 10.0, -0.2), (6.0, 5.0, 0.2)])
        self.assertIn("Median of the relative errors, without sign: 20 % of 2 changes.", elastic_report.change_table(changes))

    def test_what_does_not_go_together_is_said(self):
        def check(scale, **more):
            return elastic_freeze.check(options_of(elastic_freeze, scale, **more))
        self.assertEqual(check("small"), "")
        self.assertIn("needs --data", check("full"))
        self.assertIn("--pretrain DIR", check("full", data=pathlib.Path("a")))
        self.assertEqual(check("full", data=pathlib.Path("a"), pretrain=pathlib.Path("b")), "")

    def test_the_classes_are_cut_in_two(self):
        self.assertEqual(sorted(fashion_split.SOURCE + fashion_split.TARGET), list(range(10)))
        images, labels = bytes(784) + bytes([7]) * 784 + bytes([9]) * 784, bytes([3, 0, 8])
        with tempfile.TemporaryDirectory() as folder:
            fashion_split.write_classes(pathlib.Path(folder), "train", images, labels, fashion_split.TARGET, 5)
            self.assertEqual((pathlib.Path(folder) / "train-labels-idx1-ubyte").read_bytes(), b"\0\0\x08\x01\0\0\0\x02\0\x03")
            self.assertEqual((pathlib.Path(folder) / "train-images-idx3-ubyte").read_bytes()[:8], b"\0\0\x08\x03\0\0\0\x02")
            self.assertEqual((pathlib.Path(folder) / "train-images-idx3-ubyte").read_bytes()[16:], bytes(784) + bytes([9]) * 784)


class PipeTest(unittest.TestCase):
    def test_full_scale_begins_with_the_published_batches(self):
        plan = pipe_vs_ddp.plan(options_of(pipe_vs_ddp, "full", rounds=1))
        first = {(run.columns["devices"], run.columns["way"]): run for run in reversed(plan)}
        found = {key: (run.processes, run.sets["pipeline.stages"], run.columns["chunks"], run.sets["train.global_batch"]) for key, run in first.items()}
        self.assertEqual(found, {(3, "ddp"): (6, 1, 1, 384), (3, "pipe"): (2, 3, 4, 480), (4, "ddp"): (8, 1, 1, 480), (4, "pipe"): (2, 4, 8, 640)})

    def test_nothing_above_a_batch_that_ran_out_is_tried(self):
        plan = pipe_vs_ddp.plan(options_of(pipe_vs_ddp, "small"))
        rows = [{"outcome": "done", **plan[0].columns}, {"outcome": "out of memory", **plan[1].columns}]
        wanted = [run.columns["batch"] for run in plan if run.columns["way"] == "ddp" and pipe_vs_ddp.wanted(run, rows)]
        self.assertEqual(wanted, [16, 16])  # of both rounds
        self.assertTrue(all(pipe_vs_ddp.wanted(run, rows) for run in plan if run.columns["way"] == "pipe"))


    def test_a_batch_that_runs_out_in_one_round_is_out_of_memory(self):
        base = {"devices": 2, "way": "ddp", "chunks": 1, "batch": 32, "global_batch": 64, "said": ""}
        rows = [{**base, "outcome": "done", "images_per_s": 10.0, "memory_bytes": 5}, {**base, "outcome": "out of memory", "said": "over its limit"}]
        row = pipe_report.of_one_batch(rows, options_of(pipe_vs_ddp, "small"), pipe_vs_ddp.IMAGES)
        self.assertEqual((row["outcome"], row["said"]), ("out of memory", "over its limit"))

    def test_rates_have_their_range_and_what_rounds_do_not_tell_apart_is_marked(self):
        def row(way, batch, number, rate):
            known = {"devices": 2, "way": way, "chunks": 1 if way == "ddp" else 4, "batch": batch, "round": number, "said": None}
            known |= {"global_batch": batch * pipe_report.replicas_of(2, way, options), "outcome": "done" if rate else "out of memory"}
            return known | ({"images_per_s": rate, "memory_bytes": 2**20 * batch} if rate else {"said": "over its limit"})
        options = options_of(pipe_vs_ddp, "small")
        rows = [row("ddp", 16, 1, 50.0), row("ddp", 24, 1, 60.0), row("ddp", 32, 1, None), row("pipe", 64, 1, 70.0), row("pipe", 128, 1, 90.0),
                row("ddp", 16, 2, 54.0), row("ddp", 24, 2, 80.0), row("pipe", 64, 2, 74.0), row("pipe", 128, 2, 94.0)]
        table = pipe_vs_ddp.markdown(pipe_vs_ddp.summarise(rows, options), options)
        self.assertIn("| 2 | 24 | 70.0 (60.0 to 80.0) |  | 119 | done |", table)
        self.assertIn("| 2 | 64 | 72.0 (70.0 to 74.0) | 1.03x ≈ | 116 | done |", table)
        self.assertIn("| 2 | 128 | 92.0 (90.0 to 94.0) | 1.31x | 91 | done |", table)
        [figure] = pipe_vs_ddp.figures(rows, options)
        rates, memory = figure["panels"]
        self.assertEqual(rates["series"]["DDP, 2 devices"], [[32, 48], [52, 70], [50, 60], [54, 80]])
        self.assertEqual(memory["series"]["Pipe, 2 devices, 4 chunks"], [[64, 128], *3 * [[64, 128]]])
        self.assertEqual(rates["failed"], {"as": "out of memory", "at": {"DDP, 2 devices": [64], "Pipe, 2 devices, 4 chunks": []}})
        self.assertEqual((rates["zero"], figure["note"]), (True, "medians of rates, most memory of 2 rounds; error bars: least and greatest"))
        options.rounds = 1
        self.assertIn("one round (n = 1: nothing is known of the spread)", pipe_vs_ddp.markdown(pipe_vs_ddp.summarise(rows[:5], options), options))
        self.assertNotIn("x ≈", pipe_vs_ddp.markdown(pipe_vs_ddp.summarise(rows[:5], options), options))

    def test_a_batch_is_never_larger_than_the_data(self):
        for run in pipe_vs_ddp.plan(options_of(pipe_vs_ddp, "full", rounds=1)):
            self.assertGreaterEqual(run.sets["data.limit"], run.sets["train.global_batch"])

    def test_memory_that_others_took_is_no_limit(self):
        planned = runs.Planned(name="a", kind="a", sets={}, may_run_out=True)
        for sentence, is_row in (("out of memory on cpu:0: over its device.memory_limit", True), ("out of memory: no more threads", False)):
            def fails(*_, said=sentence):
                raise runs.RunFailed(said, runs.OUT_OF_MEMORY)
            place = types.SimpleNamespace(folder=pathlib.Path("x"), fresh_folder=lambda run: pathlib.Path("x"))
            options = types.SimpleNamespace(sluice="sluice", sets=[], device="cpu")
            with unittest.mock.patch.object(runs.Run, "carry_out", fails):
                if is_row:
                    self.assertEqual(runner.measured_row(types.SimpleNamespace(measure=None), planned, options, place)["outcome"], "out of memory")
                else:
                    self.assertRaises(runs.RunFailed, runner.measured_row, types.SimpleNamespace(measure=None), planned, options, place)


class TwoNodesTest(unittest.TestCase):
    def options(self, **more):
        return options_of(two_nodes, "small", **{"ways": list(two_nodes.WAYS), "rate": "1gbit", "scale_lr": False, **more})

    def test_the_ways_differ_in_nodes_and_batch(self):
        plan = {run.columns["way"]: run for run in two_nodes.plan(self.options(seeds=1))}
        self.assertEqual({way: (run.processes, run.network, run.sets["train.global_batch"], run.sets["train.lr"]) for way, run in plan.items()},
                         {"one": (1, "", 32, 0.05), "same_global": (2, "1gbit", 32, 0.05), "same_device": (2, "1gbit", 64, 0.05)})
        plan = two_nodes.plan(self.options(seeds=1, scale_lr=True, rate="none"))
        self.assertEqual([(run.network, run.sets["train.lr"]) for run in plan], [("", 0.05), ("", 0.05), ("", 0.1)])
        rest = [{key: value for key, value in run.sets.items() if key not in ("train.global_batch", "train.lr")} for run in plan]
        self.assertEqual(rest, [rest[0]] * 3)

    def test_every_way_has_every_place(self):
        self.assertEqual([run.columns["way"] for run in two_nodes.plan(self.options(seeds=3))], [
            "one", "same_global", "same_device", "same_global", "same_device", "one", "same_device", "one", "same_global"])

    def test_the_table_has_times_and_accuracies_beside_the_published_ones(self):
        steps = [{"event": "step", "step_ms": 500.0, "samples": 32, "allreduce_exposed_ms": 25.0, "device_busy": [0.8, 0.6]},
                 {"event": "step", "step_ms": 300.0, "samples": 16, "allreduce_exposed_ms": 35.0, "device_busy": [0.9, 0.9]}]
        planned = two_nodes.plan(self.options(seeds=1))[1]
        measured = two_nodes.measure(planned, [*steps, {"event": "eval", "top1": 10.0, "top5": 50.0}, {"event": "eval", "top1": 30.0, "top5": 60.0}],
                                     self.options())
        self.assertEqual((measured["train_s"], measured["images_per_s"], measured["exposed_ms"], measured["top1"]), (0.8, 60.0, 30.0, 30.0))
        self.assertAlmostEqual(measured["device_busy"], 0.8)
        assert_refuses_a_set(self, two_nodes.measure, planned, steps, self.options(), "was never evaluated: leave train.eval_every_steps")
        rows = [{"way": way, "nodes": 2, "global_batch": 32, **measured, "train_s": seconds}
                for way, seconds in (("one", 8.0), ("one", 12.0), ("same_global", 5.0), ("same_device", 4.0))]
        summary = two_nodes.summarise(rows, self.options())
        self.assertEqual([row["speed_up"] for row in summary], [1.0, 2.0, 2.5])
        table = two_nodes.markdown(summary, self.options())
        self.assertIn("| two nodes, the same global batch | 32 | 5.00 | 2.00x | 60.0 | 30.0 | 80.0 % | 30.00 | 60.00 |", table)
        self.assertIn("1.93x", table)
        self.assertIn("| one node | 32 | 10.0 (8.0 to 12.0) |", table)
        times, _ = two_nodes.figures(rows, self.options())[0]["panels"]
        self.assertEqual((times["kind"], times["series"][""][1:]), ("bar", [[10, 5, 4], [8, 5, 4], [12, 5, 4]]))

    def test_what_cannot_be_measured_is_said(self):
        self.assertIn("needs --data DIR", two_nodes.check(options_of(two_nodes, "full", rate="none")))
        for rate in ("fast", "0mbit", "1gbit; reboot"):
            self.assertIn("write a rate as tc has it", two_nodes.check(self.options(rate=rate)))
        self.assertEqual(two_nodes.check(self.options(rate="none")), "")
        with unittest.mock.patch.object(two_nodes.namespaces, "missing", lambda: "not root"):
            self.assertIn("not root; --rate none", two_nodes.check(self.options()))


class LearningRatesTest(unittest.TestCase):
    def options(self, **more):
        return options_of(lr_sweep, "small", **{"rates": [0.1, 0.2, 0.4], "optimizer": "momentum", **more})

    def rows(self, **top1):
        """b32_0.1 = accuracies of its seeds, None where it diverged."""
        return [{"batch": int(name[1:3]), "lr": float(name[4:]), "seed": seed, "outcome": "done" if value is not None else "diverged",
                 "train_loss": value, "loss": value, "top1": value, "top5": value}
                for name, values in top1.items() for seed, value in enumerate(values, 1)]

    def test_the_best_rate_and_how_it_grows(self):
        rows = self.rows(**{"b32_0.1": [50, 60], "b32_0.2": [40, 90], "b32_0.4": [99, None], "b64_0.1": [1, 1], "b64_0.2": [2, 2], "b64_0.4": [3, 3]})
        summary = lr_sweep.summarise(rows, self.options())
        self.assertEqual([(row["batch"], row["lr"]) for row in summary if row["is_best"]], [(32, 0.2), (64, 0.4)])
        self.assertEqual(lr_sweep.growth(summary, self.options()), 1.0)
        table = lr_sweep.markdown(summary, self.options())
        self.assertIn("| 32 | 0.4 |  | 1 of 2 diverged |  |  |  |", table)
        self.assertIn("| 32 | 0.1 | ≈ | 55.000", table)
        self.assertIn("| 64 | 0.1 |  | 1.000", table)
        [panel] = lr_sweep.figures(rows, self.options(seeds=2, epochs=1))[0]["panels"]
        self.assertEqual(panel["series"]["batch 32"], [[0.1, 0.2], [55, 65], [50, 40], [60, 90]])
        self.assertEqual(panel["failed"]["at"], {"batch 32": [0.4], "batch 64": []})
        self.assertIn("to the power 1.00", table)

    def test_of_a_batch_whose_rates_all_diverge_nothing_is_told(self):
        rows = self.rows(**{f"b{batch}_{rate}": [None if batch == 64 else 5] for batch in (32, 64) for rate in (0.1, 0.2, 0.4)})
        summary = lr_sweep.summarise(rows, self.options())
        self.assertIsNone(lr_sweep.growth(summary, self.options()))

    def test_a_run_that_diverges_is_a_row_and_another_failure_is_none(self):
        planned = lr_sweep.plan(self.options())[0]
        place = types.SimpleNamespace(folder=pathlib.Path("x"), fresh_folder=lambda run: pathlib.Path("x"))
        options = types.SimpleNamespace(sluice="sluice", sets=[], device="cpu")
        for code, outcome in ((runs.DIVERGED, "diverged"), (runs.LOST_PEER, None)):
            def fails(*_, code=code):
                raise runs.RunFailed("the loss is NaN", code)
            with unittest.mock.patch.object(runs.Run, "carry_out", fails):
                if outcome:
                    self.assertEqual(runner.measured_row(types.SimpleNamespace(measure=None), planned, options, place)["outcome"], outcome)
                else:
                    self.assertRaises(runs.RunFailed, runner.measured_row, types.SimpleNamespace(measure=None), planned, options, place)


class DualBatchTest(unittest.TestCase):
    def options(self, scale="full", **more):
        options = options_of(dual_batch, scale, **{"data": pathlib.Path("cifar"), "extra_time": "1.05", "merge": "half", "small": None, "samples": 50000, **more})
        self.assertEqual(dual_batch.check(options), "")
        return options

    def test_batches_are_the_published_ones(self):
        options = self.options()
        self.assertEqual([dual_batch.batches_of(small, options)["small_batch"] for small in range(2, 6)], [165, 237, 297, 349])
        self.assertEqual(dual_batch.batches_of(0, options), {"small_batch": None, "large_samples": 10000, "small_samples": None})
        self.assertEqual(dual_batch.batches_of(5, options)["large_samples"], None)
        self.assertEqual(dual_batch.batches_of(1, self.options(extra_time="1.3"))["small_batch"], 0)

    def test_runs_take_turns_and_batches_that_are_too_small_are_left_out(self):
        options = self.options(small=[1, 5], extra_time="1.1", seeds=2)
        self.assertEqual([run.name for run in dual_batch.plan(options)], ["small0-seed1", "small5-seed1", "small5-seed2", "small0-seed2"])
        sets = dual_batch.plan(options)[1].sets
        self.assertEqual((sets["train.steps"], sets["train.lr_decay_steps"], sets["ps.small_workers"]), (700, [400, 600], 5))

    def test_extra_time_and_differences_are_of_pairs(self):
        def row(small, seed, total_s, top1):
            return {"small_workers": small, "seed": seed, "total_s": total_s, "top1": top1, "loss": 1.0}

        rows = [row(0, 1, 100.0, 60.0), row(0, 2, 200.0, 62.0), row(5, 1, 105.0, 63.0), row(5, 2, 202.0, 63.0)]
        summary = dual_batch.summarise(rows, self.options(small=[1, 5], extra_time="1.1"))
        self.assertEqual([line["seeds"] for line in summary], [2, 0, 2])
        self.assertAlmostEqual(summary[2]["extra"], 3.0)
        self.assertAlmostEqual(summary[2]["difference"], 2.0)
        self.assertAlmostEqual(summary[2]["half_width"], 12.706)
        text = dual_batch.markdown(summary, self.options(small=[1, 5], extra_time="1.1"))
        self.assertIn("not run: below 40", text)
        self.assertIn("+3.00 ± 2.83", text)

    def test_what_does_not_go_together_is_said(self):
        for more, sentence in (({"extra_time": "0.9"}, "at least 1"), ({"small": [6]}, "0 to 5"), ({"step_s": "0"}, "above 0"), ({"sample_s": "x"}, "are numbers"),
                               ({"data": None}, "needs --data")):
            options = options_of(dual_batch, "full", **{"data": pathlib.Path("cifar"), "extra_time": "1.05", "merge": "half", "small": None, **more})
            self.assertIn(sentence, dual_batch.check(options))


class RecordTest(unittest.TestCase):
    def test_values_come_back(self):
        for value in (1, 0.25, "a b", None):
            self.assertEqual(record.number_or_text(record.text_of(value)), value)
        self.assertEqual(record.text_of("two\nlines"), "two lines")


if __name__ == "__main__":
    unittest.main()
