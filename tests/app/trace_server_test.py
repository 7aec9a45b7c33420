#!/usr/bin/env python3
"""`train --trace` of a run with a parameter server: what the server and each of its workers write.

    trace_server_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import pathlib
import tempfile
import unittest

import sluice_cli as cli
import trace_rules


class TraceServerTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.run_dir = self.folder / "run"

    def configuration(self, ps, **more):
        return cli.write_config(
            self.folder / "run.toml", device={"list": "cpu", "threads": 1}, model={"name": "mlp", "image_size": 8},
            data={"name": "shapes", "samples": 64}, train={"steps": 8, "lr": 0.05}, replicas={"sync": "ps"},
            ps={"policy": "bsp", "worker_batch": 8} | ps, **more)

    def serve(self, arguments):
        """A server and its workers, with the further arguments of each."""
        processes = cli.start_ranks(len(arguments), "train", self.configuration({}), arguments_of=dict(enumerate(arguments)))
        return cli.finish_all(processes)

    def test_a_worker_of_a_server_traces_its_own_steps(self):
        own = self.folder / "own"
        for done in self.serve([["--run-dir", self.run_dir], ["--run-dir", own, "--trace", "2..4"], []]):
            self.assertEqual(done.returncode, 0, done.stderr)
        trace = trace_rules.read(own / "trace.worker0.json.gz")
        trace_rules.check(trace)
        self.assertEqual({bar["args"]["step"] for bar in trace_rules.bars(trace, phase="forward")}, {2, 3, 4})
        self.assertIsNone(trace["sluice"]["clock"])

    def test_the_parts_of_a_parameter_server_have_ranks_of_their_own(self):
        folders = [self.run_dir, self.folder / "one", self.folder / "two"]
        for done in self.serve([["--run-dir", folder, "--trace", "2..4"] for folder in folders]):
            self.assertEqual(done.returncode, 0, done.stderr)
        files = [folders[0] / "trace.rank0.json.gz", *(folders[i] / f"trace.worker{i - 1}.json.gz" for i in (1, 2))]
        for rank, file in enumerate(files):
            trace = trace_rules.read(file)
            trace_rules.check(trace)
            self.assertEqual(trace["distributedInfo"], {"backend": "", "rank": rank, "world_size": 3})
        if trace_rules.HAS_HTA:
            _, ranks = trace_rules.hta_breakdown(files[1:], self.folder)  # it cannot read what has no device, as the server
            self.assertEqual(ranks, [1, 2])

    def test_a_worker_that_keeps_no_files_trains_untraced(self):
        done = self.serve([["--run-dir", self.run_dir], ["--trace", "2..4"]])
        self.assertEqual([process.returncode for process in done], [0, 0], done[0].stderr + done[1].stderr)
        self.assertIn("worker 0 is not traced: it writes no files without its own --run-dir", done[1].stderr)

    def test_workers_in_virtual_time_have_rows_of_their_own(self):
        config = self.configuration({"clock": "virtual", "workers": 3}, pipeline={"stages": 2, "chunks": 2})
        cli.must_run("train", config, "--run-dir", self.run_dir, "--trace", "2..3")
        trace = trace_rules.read(self.run_dir / "trace.rank0.json.gz")
        trace_rules.check(trace)
        groups = trace_rules.group_names(trace)
        forward = trace_rules.bars(trace, phase="forward")
        self.assertEqual(len(forward), 2 * 3 * 2 * 2)
        self.assertEqual({(groups[bar["pid"]], bar["args"]["worker"]) for bar in forward},
                         {(f"rank 0 worker {worker} replica 0: cpu:{device}", worker)
                          for worker in range(3) for device in range(2)})


if __name__ == "__main__":
    unittest.main(verbosity=2)
