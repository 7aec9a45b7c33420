#!/usr/bin/env python3
"""scripts/experiment.py, the experiments of the parameter server: what they run, and the arithmetic of their tables, against
numbers worked out by hand. A stand-in trains."""

import csv
import json
import pathlib
import sys
import tempfile
import types
import unittest

from script_copy import ScriptCopy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "scripts"))

from experiments import anytime, anytime_report, arguments, batch_norm_slicing, communication, partitions, record, runs, server_runs  # noqa: E402

# An update takes 10 s and is of two pushes of 4 samples; with a limit 8 s, and the pushes are of 2 and 6. Step n is right in n %
# of its samples. Without a server: 3 ms a slice + 90 ms, of which loading and optimizer are 10 + 20 ms more. All-reduce: 4 ms + 1 ms of skew.
FAKE = r'''#!/usr/bin/env python3
import json, os, pathlib, sys
arguments = sys.argv[1:]
sets = dict(value.split("=", 1) for name, value in zip(arguments, arguments[1:]) if name == "--set")
rank = int(os.environ.get("RANK", 0))
with open(os.environ["FAKE_CALLS"], "a") as calls:
    calls.write(json.dumps([rank, int(os.environ.get("WORLD_SIZE", 1)), pathlib.Path(arguments[1]).name, sets]) + "\n")
if rank:
    sys.exit(0)
folder = pathlib.Path(arguments[arguments.index("--run-dir") + 1])
folder.mkdir()
limit = float(sets.get("ps.time_limit_s", 0))
took, sizes = (8, (2, 6)) if limit else (10, (4, 4))
chunks = int(sets.get("pipeline.chunks", 1))
real = sets.get("ps.clock") == "real"
lines = [{"event": "ps", "time_limit_s": limit}]
for n in range(1, int(sets["train.steps"]) + 1):
    if "ps.policy" in sets:
        for worker, examples in enumerate(sizes):
            lines.append({"event": "push", "step": n, "worker": worker, "examples": examples, "staleness": worker, "compute_s": 0.5 * took, "send_s": 1,
                          **({} if real else {"virtual_s": took * n})})
    lines.append({"event": "step", "step": n, "samples": 8, "top1": float(n), "loss": 2.0, "step_ms": 1000 * took if "ps.policy" in sets else 120 + 3 * chunks,
                  "load_ms": 10, "optimizer_ms": 20, "allreduce_ms": 5, "skew_ms": 1, "sync_bytes": 2000000})
    if n % int(sets["train.eval_every_steps"]) == 0:
        lines.append({"event": "eval", "step": n, "top1": 90.0 - chunks, "loss": 1.0})
(folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
'''
BENCH = r'''#!/usr/bin/env python3
import json, sys
if "--megabytes" not in sys.argv or "--repeats" not in sys.argv:
    sys.exit(2)
print(json.dumps({"bytes_per_s": 5e8, "least_share": 0.9, "updates_per_s": 1.0}))
'''


def options_of(experiment, **more):
    return types.SimpleNamespace(**{**experiment.SCALES["small"], "scale": "small", "data": None, **more})


class RunsTest(unittest.TestCase):
    """With a stand-in for the program."""

    def setUp(self):
        self.copy = self.enterContext(ScriptCopy())
        for name, text in (("sluice", FAKE), ("bench/bench_parameter_server", BENCH)):
            self.copy.stand_in(f"build/release/{name}", "")
            (self.copy.root / "build/release" / name).write_text(text, encoding="utf-8")
        self.calls_file = self.copy.bin.parent / "calls"
        self.out = self.copy.bin.parent / "out"

    def run_experiment(self, *words):
        return self.copy.run("experiment.py", *words, "--out", str(self.out), FAKE_CALLS=str(self.calls_file))

    def calls(self):
        return [json.loads(line) for line in self.calls_file.read_text().splitlines()]

    def rows_of(self, *words):
        done = self.run_experiment(*words, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["rows"]

    def test_anytime_and_fixed_batches_take_turns(self):
        rows = self.rows_of("anytime", "--seeds", "2", "--steps", "60", "--thresholds", "30", "34", "90", "--decay-rate", "0.93")
        found = [(sets["ps.policy"], sets["train.seed"], sets["ps.worker_batch"], sets["ps.partitions"], sets["ps.time_limit_s"]) for _, _, _, sets in self.calls()]
        fmb, amb = ("64", "1", "0"), ("96", "16", "6.2")
        self.assertEqual(found, [("fmb", "1", *fmb), ("amb", "1", *amb), ("amb", "2", *amb), ("fmb", "2", *fmb)])
        for _, world, config, sets in self.calls():
            self.assertEqual((world, config, sets["ps.clock"], sets["ps.induce_scale"], sets["train.lr_decay_steps"]), (1, "anytime.toml", "virtual", "1", "[50]"))
            self.assertAlmostEqual(float(sets["ps.sample_s"]) * 64, 5.41)
        of_fmb, of_amb, *thresholds = rows
        names = ("update_s", "updates_x", "examples_per_s", "examples_x", "samples_mean", "samples_min", "samples_max", "staleness_max")
        self.assertEqual([of_amb[name] for name in names], [8, 1.25, 1, 1.25, 4, 2, 6, 1])
        self.assertEqual((of_fmb["update_s"], of_fmb["updates_x"], of_fmb["samples_min"], of_fmb["top1_sd"]), (10, 1, 4, 0))
        # Step n is right in n %. Means of the last 50: 30 is reached at step 55 (30.5, of 6 to 55), 34 at step 59, 90 never.
        self.assertEqual([(row["fmb_s"], row["amb_s"], row["amb_x"], row["amb_reached"]) for row in thresholds],
                         [(550, 440, 1.25, 2), (590, 472, 1.25, 2), (None, None, None, 0)])
        table = (self.out / "table.md").read_text(encoding="utf-8")
        self.assertIn("| 30 | 550.0 ± 0.0 | 440.0 ± 0.0 | 1.25 ± 0.00x |\n", table)
        self.assertIn("| 90 | never | never |  |\n", table)
        self.assertIn("| s to accuracy .60 | 5255 | 3504 (1.50x) | 4435 | 3539 (1.25x) |\n", table)

    def test_processes_have_limit_and_stalls_in_proportion(self):
        self.rows_of("anytime", "--real", "--seeds", "1", "--steps", "8", "--thresholds", "1")
        worlds = [(rank, world, config) for rank, world, config, _ in self.calls()]
        self.assertEqual(sorted(worlds), sorted(3 * [(rank, 3, "parameter_server.toml") for rank in range(3)]))
        by_run = [sets for rank, _, _, sets in self.calls() if rank == 0]
        found = [(sets["ps.clock"], sets["ps.placement"], sets["ps.workers"], "ps.sample_s" in sets) for sets in by_run]
        self.assertEqual(found, 3 * [("real", "rank0", "2", False)])
        self.assertEqual((by_run[0]["ps.induce"], by_run[0]["ps.time_limit_s"], by_run[0]["ps.partitions"]), ("none", "0", "16"))
        # A push of 4 samples took 5 s: 512 take 640 s, where the published 242 took 5.41.
        self.assertAlmostEqual(float(by_run[2]["ps.time_limit_s"]) / (640 * 6.2 / 5.41), 1, 5)
        self.assertAlmostEqual(float(by_run[1]["ps.induce_scale"]) / (640 / 5.41), 1, 5)
        with open(self.out / "results.csv", encoding="utf-8", newline="") as file:
            total = {row["run"]: row["total_s"] for row in csv.DictReader(file)}
        self.assertEqual(total["fmb-seed1"], str(5 + 1 + 7 * 10))  # the first push, then the steps

    def test_it_goes_on_with_the_same_calibration(self):
        self.rows_of("anytime", "--real", "--seeds", "1", "--steps", "8", "--thresholds", "1")
        self.calls_file.unlink()
        self.rows_of("anytime", "--real", "--seeds", "2", "--steps", "8", "--thresholds", "1")
        self.assertEqual([sets["train.seed"] for rank, _, _, sets in self.calls() if rank == 0], ["2", "2"])
        other = self.run_experiment("anytime", "--seeds", "2", "--steps", "8", "--thresholds", "1")
        self.assertEqual(other.returncode, 2)
        self.assertIn("of an experiment with real = true and not false", other.stderr)

    def test_slices_are_compared_with_the_whole_batch(self):
        rows = self.rows_of("partitions", "--batches", "mlp=64", "--batches", "toy_cnn=8", "--rounds", "1", "--most", "10")
        self.assertEqual([row["partitions"] for row in rows if row["model"] == "mlp" and "cost" in row], [1, 2, 4, 8, 16, 32])
        of_two = next(row for row in rows if row.get("partitions") == 2)
        self.assertEqual((of_two["fastest_ms"], of_two["us_per_sample"], of_two["cost"], of_two["cost_of_medians"]), (96, 1500, 96 / 93 - 1, 96 / 93 - 1))
        end = next(row for row in rows if "most_partitions" in row)
        self.assertEqual((end["most_partitions"], end["samples_of_slice"]), (4, 16))  # 102 / 93 is 9.7 % more
        self.assertAlmostEqual(end["slice_ms"], 3)
        self.assertAlmostEqual(end["sample_ms"], 90 / 64)
        self.assertAlmostEqual(end["smallest_by_line"], 3 / (90 / 64 * 0.1))

    def test_slices_of_a_model_with_batch_norm(self):
        rows = self.rows_of("batch_norm_slicing", "--seeds", "2", "--steps", "12", "--partitions", "1", "2", "8", "--modes", "micro", "deferred")
        self.assertEqual([(sets["pipeline.batch_norm"], sets["pipeline.chunks"]) for _, _, _, sets in self.calls()][:5],
                         [("micro", "1"), ("micro", "2"), ("micro", "8"), ("deferred", "2"), ("deferred", "8")])
        self.assertEqual([(row["mode"], row["top1"], row["difference"]) for row in rows if "top1" in row],
                         [("micro", 89, 0), ("micro", 88, -1), ("micro", 82, -7), ("deferred", 89, 0), ("deferred", 88, -1), ("deferred", 82, -7)])
        self.assertEqual([row["breaks_at"] for row in rows if "breaks_at" in row], [8, 8])
        self.assertIn("Breaks at 8 slices, of 8 samples: more than 2 points below", (self.out / "table.md").read_text(encoding="utf-8"))

    def test_push_and_pull_beside_all_reduce(self):
        rows = self.rows_of("communication", "--rounds", "1", "--sizes", "8", "--workers", "1", "4", "--processes", "2")
        self.assertEqual([(row["way"], row["peers"], row["bytes"]) for row in rows], [("server", 1, 8388608), ("server", 4, 8388608), ("allreduce", 2, 2000000)])
        # 8 MiB to the server and back, four times, at 0.5 GB/s
        self.assertAlmostEqual(rows[1]["ms"], 134.217728)
        self.assertEqual((rows[1]["gb_per_s"], rows[1]["least_share"]), (0.5, 0.9))
        self.assertEqual((rows[2]["ms"], rows[2]["gb_per_s"]), (4, 0.5))
        self.assertEqual([(rank, world) for rank, world, _, _ in self.calls()].count((1, 2)), 1)

    def test_what_does_not_go_together_is_said(self):
        for words, said in ((("anytime", "--real", "--sample-s", "1"), "are for virtual time"),
                            (("anytime", "--partitions", "97"), "is more than --amb-batch 96"),
                            (("anytime", "--time-limit", "0"), "are above 0"),
                            (("anytime", "--scale", "full"), "needs --data DIR"),
                            (("batch_norm_slicing", "--partitions", "65"), "is more than --batch 64"),
                            (("communication", "--data", "x"), "reads no data"),
                            (("communication", "--processes", "1"), "takes two at least"),
                            (("partitions", "--batches", "mpl=3"), "choose from mlp, toy_cnn")):
            done = self.run_experiment(*words)
            self.assertEqual((done.returncode, said in done.stderr), (2, True), done.stderr)
        (self.copy.root / "build/release/bench/bench_parameter_server").unlink()
        self.assertIn("bench_parameter_server is missing: run scripts/bootstrap.sh", self.run_experiment("communication").stderr)
        self.assertFalse(self.calls_file.exists())

    def test_a_bench_of_another_version_is_a_failure(self):
        (self.copy.root / "build/release/bench/bench_parameter_server").write_text("#!/bin/sh\necho 1 2 3\n", encoding="utf-8")
        done = self.run_experiment("communication", "--rounds", "1")
        self.assertEqual((done.returncode, "build both from the same sources" in done.stderr), (70, True), done.stderr)


class ServerRunTest(unittest.TestCase):
    def test_means_and_moments(self):
        self.assertEqual(server_runs.moving_mean([1, 2, 3, 4], 2), [1, 1.5, 2.5, 3.5])
        self.assertEqual(server_runs.time_to([5, 6, 7], [1, 3, 2], 2), 6)
        self.assertIsNone(server_runs.time_to([5, 6, 7], [1, 3, 2], 4))
        self.assertEqual([server_runs.tail_mean([5, 6, 7, 8], [10, 20, 60, 70], time) for time in (4, 5, 6.5, 7)], [None, 10, 15, 30])
        self.assertEqual(server_runs.tail_mean([5, 6, 7, 8], [10, 20, 60, 70]), 50)
        self.assertEqual(server_runs.from_cell(record.number_or_text(server_runs.to_cell([None, 1.5]))), [None, 1.5])
        self.assertEqual(server_runs.from_cell(record.number_or_text(server_runs.to_cell([2.0]))), [2.0])
        self.assertEqual(server_runs.from_cell(None), [])

    def test_histograms_have_the_same_edges(self):
        edges = [-0.5, 0.5, 1.5, 2.5]
        self.assertEqual(server_runs.histogram({"a": [[0, 1], [1, 2]], "b": [[2, 2]]}),
                         {"a": [edges, [25, 50, 25], [0, 50, 0], [50, 50, 50]], "b": [edges, *3 * [[0, 0, 100]]]})
        self.assertEqual(server_runs.histogram({"a": [[0.5, 1.25, 2.5]]}, bins=2), {"a": [[0.5, 1.5, 2.5], *3 * [[200 / 3, 100 / 3]]]})
        self.assertEqual(server_runs.histogram({"a": [[7], [7]]}), {"a": [[6.5, 7.5], [100], [100], [100]]})
        self.assertEqual(server_runs.histogram({"a": [[0.5, 0.5], []]}), {"a": [[0.0, 1.0], [100], [100], [100]]})
        self.assertEqual(server_runs.histogram({"a": [[]]}), {})

    def test_evaluations_lie_at_their_updates(self):
        events = [{"event": "push", "step": n, "virtual_s": 3.0 * n, "examples": n} for n in (1, 2)]
        events += [{"event": "step", "step": n, "samples": n} for n in (1, 2)] + [{"event": "eval", "step": 0, "top1": 1}, {"event": "eval", "step": 2, "top1": 50}]
        run = server_runs.ServerRun(events)
        self.assertEqual((run.times, run.examples_so_far(), run.evaluated("top1")), ([3, 6], [1, 3], [[6], [50]]))


class ArithmeticTest(unittest.TestCase):
    def test_factors_are_of_the_same_seed(self):
        def row(arm, seed, total_s, reached, evaluated):
            return {"arm": arm, "seed": seed, "updates": 10, "pushes": 20, "total_s": total_s, "samples_mean": 5.0, "samples_min": 1, "samples_max": 9,
                    "staleness_mean": 0, "staleness_max": 0, "top1": 80.0, "reached_s": reached, "evaluated_s": evaluated, "evaluated_top1": "40 80"}
        rows = [row("fmb", 1, 100.0, "60 -", "50 100"), row("amb", 1, 50.0, "20 40", "25 50"),
                row("fmb", 2, 90.0, "30 80", "45 90"), row("amb", 2, 60.0, "30 -", "30 60")]
        options = options_of(anytime, arms=["fmb", "amb"], thresholds=[50.0, 80.0], seeds=2, real=False)
        fmb, amb, half, most = anytime_report.summarise(rows, options)
        self.assertEqual((amb["updates_x"], amb["examples_x"], amb["update_s"]), (1.75, 1.75, 5.5))
        self.assertAlmostEqual(amb["updates_x_sd"], 0.5**0.5 / 2)
        self.assertEqual((fmb["top1_then"], amb["top1_then"]), (40, 60))  # of seed 1 at 50, of seed 2 at 60 s: only 40 of fmb was there
        self.assertEqual((half["fmb_s"], half["amb_s"], half["amb_x"]), (45, 25, 2))  # 60 / 20 and 30 / 30
        self.assertEqual((most["amb_reached"], most["amb_x"]), (1, None))
        self.assertIn("| 80 | 80.0 (1 of 2 seeds) | 40.0 (1 of 2 seeds) |  |\n", anytime_report.threshold_table([half, most], options))

    def test_a_line_through_slices(self):
        for expected, points in (((2, 10), [(1, 12), (4, 18), (64, 138)]), ((0, 5), [(1, 5), (2, 5)]), ((3, 0), [(1, 3), (2, 6)]), ((0.0, 7), [(1, 7)])):
            for ours, theirs in zip(partitions.line(points), expected):
                self.assertAlmostEqual(ours, theirs)
        self.assertEqual(partitions.line([(1, 10), (2, 8)])[0], 0)  # never negative
        a, b = partitions.line([(1, 1), (2, 4)])  # y = 3 x - 2 without that
        self.assertEqual(b, 0)
        self.assertAlmostEqual(a, (1 / 1 + 8 / 16) / (1 / 1 + 4 / 16))

    def test_the_fastest_step_of_all_rounds_counts(self):
        def row(slices, number, fastest_ms, median_ms):
            return {"model": "mlp", "batch": 100, "partitions": slices, "round": number, "fastest_ms": fastest_ms, "median_ms": median_ms}
        rows = [row(1, 1, 12.0, 20.0), row(1, 2, 10.0, 10.0), row(4, 1, 11.0, 40.0), row(4, 2, 15.0, 30.0)]
        _, four, end = partitions.of_model("mlp", rows, types.SimpleNamespace(most=10.5))
        self.assertEqual([round(four[name], 9) for name in ("fastest_ms", "cost", "cost_of_medians")], [11, 0.1, 1.5])
        self.assertEqual(end["most_partitions"], 4)
        self.assertEqual(partitions.of_model("mlp", rows, types.SimpleNamespace(most=9.9))[-1]["most_partitions"], 1)

    def test_slices_have_two_samples_at_least(self):
        self.assertEqual([partitions.slices_of(batch) for batch in (1, 4, 7, 1024)], [[1], [1, 2], [1, 2], [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]])

    def test_batch_norm_breaks_where_all_further_numbers_do(self):
        def row(slices, difference, half_width=0.5):
            return {"partitions": slices, "difference": difference, "half_width": half_width}
        self.assertEqual(batch_norm_slicing.breaks_at([row(1, 0), row(2, -3), row(4, -1), row(8, -3), row(16, -9)], 2), 8)
        self.assertIsNone(batch_norm_slicing.breaks_at([row(1, 0), row(2, -3, half_width=4)], 2))  # may be chance
        self.assertEqual(batch_norm_slicing.breaks_at([row(1, 0, None), row(2, -3, None)], 2), 2)  # of one seed

    def test_the_mlp_has_about_the_size(self):
        for mib in (1, 2, 8, 32, 128):
            side = communication.image_size_of(mib * 2**20)
            elements = 3 * side * side * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10
            self.assertLess(abs(4 * elements / (mib * 2**20) - 1), 0.05)

    def test_sizes_in_figures_are_what_was_sent(self):
        rows = [{"way": way, "mib": 2, "peers": 2, "bytes": size, "ms": 4.0, "gb_per_s": 0.5, "least_share": None, "round": 1}
                for way, size in (("server", 2 * 2**20), ("allreduce", 1.75 * 2**20))]
        by_size, by_peers = communication.figures(rows, types.SimpleNamespace(rounds=1))
        self.assertEqual([panel["series"] for panel in by_size["panels"]], [{"2 workers": [[2.0], *3 * [[4.0]]]}, {"2 processes": [[1.75], *3 * [[4.0]]]}])
        self.assertEqual([list(panel["series"]) for panel in by_peers["panels"]], [["2 MiB"], ["1.75 MiB"]])

    def test_data_are_known_by_their_files(self):
        with tempfile.TemporaryDirectory() as folder:
            options = types.SimpleNamespace(data=pathlib.Path(folder))
            self.assertEqual(arguments.data_title(options), "CIFAR-10")
            (options.data / "train-images-idx3-ubyte.gz").touch()
            self.assertEqual(arguments.data_sets(options), {"data.name": "fashion_mnist", "data.path": pathlib.Path(folder).resolve()})
        self.assertEqual(arguments.data_title(types.SimpleNamespace(data=None)), "shapes")

    def test_rows_of_earlier_versions_stay_valid(self):
        plain = runs.Planned(name="a", kind="a", sets={"b": 1})
        self.assertEqual(record.settings_digest(plain), "s551696cdc7d3")
        self.assertNotEqual(record.settings_digest(plain), record.settings_digest(runs.Planned(name="a", kind="a", sets={"b": 1}, program=("c",))))

    def test_one_push_of_many_is_a_smaller_update(self):
        options = options_of(anytime, arms=["fmb", "asp"], decay_rate=0.9, decay_steps=100)
        sets = anytime.schedule_sets("asp", options)
        self.assertEqual((sets["train.steps"], sets["train.eval_every_steps"], sets["train.lr_decay_steps"]), (3000, 250, [1000, 2000]))
        self.assertEqual(anytime_report.width_of("asp", options), 500)


if __name__ == "__main__":
    unittest.main()
