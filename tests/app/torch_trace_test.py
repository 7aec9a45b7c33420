#!/usr/bin/env python3
"""profile.level = "torch": the traces of LibTorch's own profiler, and the operators that a run names beside them.

    torch_trace_test.py [unittest options]        SLUICE_BINARY names the binary

LibTorch's profiler is the reference here: what our watch counts is compared with the bars of its trace.
"""

import collections
import gzip
import json
import pathlib
import resource
import tempfile
import unittest

import long_tests
import sluice_cli as cli
from trace_rules import bars, within

STEPS, CHUNKS = 8, 2


def configuration(folder, **more):
    tables = {"device": {"list": "cpu", "threads": 1},
              "model": {"name": "resnet8", "image_size": 16}, "data": {"name": "shapes", "samples": 256},
              "train": {"steps": STEPS, "global_batch": 16, "lr": 0.05}, "profile": {"level": "torch"}}
    for table, values in more.items():
        tables[table] = {**tables.get(table, {}), **values}
    return cli.write_config(folder / "run.toml", **tables)


def read(file):
    """LibTorch's trace: it need not be what readers of ours look for (trace_rules.read)."""
    return json.loads(gzip.decompress(file.read_bytes()))


def operators_in(trace, annotations):
    """How often each operator runs within one of the annotations, by its name."""
    calls = collections.Counter()
    by_thread = collections.defaultdict(list)
    for bar in annotations:
        by_thread[bar["tid"]].append(bar)
    for bar in bars(trace):
        if bar["cat"] == "cpu_op" and not bar["name"].startswith("autograd::"):
            calls[bar["name"]] += any(within(bar, outer) for outer in by_thread[bar["tid"]])
    return +calls


class TorchTraceTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.run_dir = self.folder / "run"

    def annotations(self, trace, beginning):
        return [bar for bar in bars(trace) if bar["cat"] == "user_annotation" and bar["name"].startswith(beginning)]

    def train(self, config, *arguments, **more):
        return cli.must_run("train", config, "--run-dir", self.run_dir, *arguments, **more)

    def test_a_run_that_diverges_says_that_its_trace_is_lost(self):
        config = configuration(self.folder, train={"steps": STEPS, "global_batch": 16, "lr": 1e30})
        done = cli.run("train", config, "--run-dir", self.run_dir, "--trace", "1..8")
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertRegex(done.stderr, r"warning LibTorch's trace of \d steps? is lost, because the run failed")

    def test_what_a_killed_process_left_goes(self):
        self.train(configuration(self.folder, train={"steps": 2, "global_batch": 16}))
        left = self.run_dir / "torch_trace.12345.json"
        left.write_text("{")
        self.train(configuration(self.folder), "--resume", "auto")
        self.assertFalse(left.exists())
        self.assertTrue((self.run_dir / "torch_trace.rank0.json.gz").exists())

    def test_every_stage_is_there_with_the_operators_that_the_run_names(self):
        config = configuration(self.folder, pipeline={"stages": 2, "chunks": CHUNKS}, replicas={"local": 2})
        done = self.train(config)
        self.assertIn("LibTorch's trace of 5 steps written to", done.stderr)
        trace = read(self.run_dir / "torch_trace.rank0.json.gz")
        self.assertEqual([bar["name"] for bar in sorted(self.annotations(trace, "ProfilerStep#"), key=lambda bar: bar["ts"])],
                         [f"ProfilerStep#{step}" for step in range(2, 7)])
        threads = set()
        for replica in (0, 1):
            for stage in (0, 1):
                for phase in ("forward", "backward"):
                    own = self.annotations(trace, f"{phase}, replica {replica} stage {stage}, micro-batch")
                    self.assertEqual(len(own), 5 * CHUNKS)
                    self.assertEqual(len({bar["tid"] for bar in own}), 1)
                    self.assertTrue(operators_in(trace, own), "no operator of this stage was seen")
                    threads.add(own[0]["tid"])
        self.assertEqual(len(threads), 4, "a thread for each stage of each replica")
        (event,) = cli.events(self.run_dir, "operators")
        self.assertEqual(event["steps"], 5)
        self.assert_names_what_libtorch_saw(trace, event)
        self.assert_report_has_its_longest(event)
        self.assertIn("ms a step (mean of 5 steps):", done.stderr)

    def assert_report_has_its_longest(self, event):
        (run,) = json.loads(cli.must_run("report", self.run_dir, "--json").stdout)["runs"]
        told = run["operators"]
        self.assertEqual(told["steps"], 5)
        self.assertAlmostEqual(told["operator_ms"], (sum(row["self_ms"] for row in event["rows"]) + event["rest_ms"]) / 5)
        self.assertEqual([row["operator"] for row in told["rows"]], [row["operator"] for row in event["rows"][:30]])
        self.assertAlmostEqual(told["rows"][0]["self_ms"], event["rows"][0]["self_ms"] / 5)
        self.assertIn("\noperators, ", cli.must_run("report", self.run_dir).stdout)

    def assert_names_what_libtorch_saw(self, trace, event):
        rows = collections.defaultdict(collections.Counter)
        for row in event["rows"]:
            rows[row["layer"], row["pass"]][row["operator"]] += row["calls"]
            self.assertGreaterEqual(row["self_ms"], 0)
        layers = {layer for layer, _ in rows if layer is not None}
        self.assertGreaterEqual(layers, {"layer1.0", "layer2.0", "layer3.0", "loss"})
        forward = self.annotations(trace, "forward, ")
        for layer in layers - {"loss"}:
            own = [bar for bar in bars(trace) if bar["name"] == layer and any(within(bar, outer) for outer in forward)]
            self.assertEqual(rows[layer, "forward"], operators_in(trace, own), layer)
        all_backward = operators_in(trace, self.annotations(trace, "backward, "))
        reducing = operators_in(trace, self.annotations(trace, "all_reduce, "))
        ours = sum((calls for (_, direction), calls in rows.items() if direction == "backward"), collections.Counter())
        # What a stage does for the sum over replicas lies within its backward, and is no layer's.
        del ours["autograd"]  # its engine's own work, under many names in the trace
        for name, calls in ours.items():
            self.assertLessEqual(calls, all_backward[name], name)
            self.assertGreaterEqual(calls, all_backward[name] - reducing[name], name)
        for layer in layers:
            self.assertTrue(rows[layer, "backward"], f"nothing of {layer} backward")

    def test_the_numbers_of_a_training_are_those_without_it(self):
        weights = []
        for level in ("off", "events", "torch"):
            config = configuration(self.folder, profile={"level": level}, pipeline={"stages": 2, "chunks": CHUNKS},
                                   train={"steps": 4})
            run_dir = self.folder / level
            cli.must_run("train", config, "--run-dir", run_dir)
            weights.append((run_dir / "checkpoints" / "step-4" / "model.safetensors").read_bytes())
            self.assertEqual((run_dir / "torch_trace.rank0.json.gz").exists(), level == "torch")
            if level == "torch":  # steps 2 to 4 are all that there are
                trace = read(run_dir / "torch_trace.rank0.json.gz")
                self.assertEqual(len(self.annotations(trace, "ProfilerStep#")), 3)
                for step in cli.events(run_dir, "step"):
                    parts = ("load", "forward", "backward", "transfer", "allreduce_exposed", "optimizer", "idle")
                    self.assertAlmostEqual(sum(step[f"{part}_ms"] for part in parts), step["step_ms"], places=6)
        self.assertEqual(weights[0], weights[1])
        self.assertEqual(weights[0], weights[2])

    def test_every_process_has_a_file_through_rank_0(self):
        port = cli.free_port()
        processes = []
        config = configuration(self.folder)
        for rank in (0, 1):  # rank 0's steps count
            arguments = ["--run-dir", self.run_dir, "--trace", "3..4"] if rank == 0 else []
            processes.append(cli.start("train", config, *arguments, env=cli.rank_environment(rank, 2, port)))
        for done in cli.finish_all(processes):
            self.assertEqual(done.returncode, 0, done.stderr)
        traces = [read(self.run_dir / f"torch_trace.rank{rank}.json.gz") for rank in (0, 1)]
        pids = set()
        for trace in traces:
            forward = self.annotations(trace, "forward, ")
            self.assertEqual(len(forward), 2)
            self.assertTrue(operators_in(trace, forward))
            pids.update(bar["pid"] for bar in forward)
        self.assertEqual(len(pids), 2, "one process wrote both")
        self.assertEqual(sorted(file.name for file in self.run_dir.glob("*trace*")),
                         ["torch_trace.rank0.json.gz", "torch_trace.rank1.json.gz", "trace.rank0.json.gz", "trace.rank1.json.gz"])

    @long_tests.only("app_trace has those of Sluice in CI")
    def test_traces_of_processes_that_are_no_more_go(self):
        config = configuration(self.folder, model={"name": "mlp", "image_size": 8}, train={"steps": 4})
        cli.must_run_ranks(2, "train", config, "--run-dir", self.run_dir, "--trace", "3")
        self.assertTrue((self.run_dir / "torch_trace.rank1.json.gz").exists())
        (self.run_dir / "torch_trace.rankx.json.gz").write_bytes(b"of somebody else")
        self.train(config, "--resume", "auto", "--trace", "6", "--set", "train.steps=6")
        self.assertEqual(sorted(file.name for file in self.run_dir.glob("*trace*")),
                         ["torch_trace.rank0.json.gz", "torch_trace.rankx.json.gz", "trace.rank0.json.gz"])
        trace = read(self.run_dir / "torch_trace.rank0.json.gz")
        self.assertEqual([bar["name"] for bar in self.annotations(trace, "ProfilerStep#")], ["ProfilerStep#6"])

    @long_tests.only("one more run")
    def test_an_evaluation_ends_the_trace(self):
        self.train(configuration(self.folder, train={"eval_every_steps": 4}))
        trace = read(self.run_dir / "torch_trace.rank0.json.gz")
        self.assertEqual(len(self.annotations(trace, "ProfilerStep#")), 3)

    def test_a_long_trace_ends_where_the_memory_is_full(self):
        config = configuration(self.folder, model={"name": "mlp", "image_size": 8}, pipeline={"chunks": 16},
                               train={"steps": 80, "global_batch": 16}, data={"samples": 2048})
        done = self.train(config, "--trace", "2..79")
        self.assertIn("the limit is 50000", done.stderr)
        (event,) = cli.events(self.run_dir, "operators")
        calls = sum(row["calls"] for row in event["rows"])
        self.assertLess(event["steps"], 78)
        self.assertLessEqual(calls, 50_000)
        self.assertGreater(calls + calls / event["steps"], 50_000)
        trace = read(self.run_dir / "torch_trace.rank0.json.gz")
        self.assertEqual(len(self.annotations(trace, "ProfilerStep#")), event["steps"])

    def test_a_trace_that_cannot_be_written_costs_the_trace_alone(self):
        self.run_dir.mkdir()
        (self.run_dir / "torch_trace.rank0.json.gz").mkdir()
        done = self.train(configuration(self.folder))
        self.assertIn("the trace is lost; the run continues", done.stderr)
        self.assertEqual(cli.events(self.run_dir, "summary")[0]["outcome"], "done")

        def small_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))

        other = self.folder / "other"
        config = configuration(self.folder, model={"name": "mlp", "image_size": 8}, pipeline={"chunks": 8})
        done = cli.must_run("train", config, "--run-dir", other, preexec_fn=small_files)
        self.assertIn("could not write all of", done.stderr)
        self.assertEqual(list(other.glob("torch_trace*")), [])
        self.assertEqual(cli.events(other, "summary")[0]["outcome"], "done")
        self.assertEqual(len(cli.events(other, "operators")), 1)

    def test_profile_traces_further_steps(self):
        config = configuration(self.folder, model={"name": "mlp", "image_size": 8}, profile={"steps": 2})
        done = cli.must_run("profile", config, "--out", self.folder / "profile.json")
        trace = read(self.folder / "torch_trace.rank0.json.gz")
        self.assertEqual(len(self.annotations(trace, "ProfilerStep#")), 5)
        self.assertIn("ms a step (mean of 5 steps):", done.stderr)

    def test_a_parameter_server_has_no_steps_of_its_own(self):
        config = configuration(self.folder, model={"name": "mlp", "image_size": 8}, replicas={"sync": "ps"},
                               ps={"clock": "virtual", "worker_batch": 8, "policy": "bsp"}, train={"global_batch": 8})
        done = self.train(config)
        self.assertIn('profile.level = "torch": unavailable (a parameter server\'s workers make the steps)', done.stderr)
        self.assertEqual(list(self.run_dir.glob("torch_trace*")), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
