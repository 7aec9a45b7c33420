#!/usr/bin/env python3
"""`sluice replay`: a recorded step replays as it was, and with edits as the run that is really slowed down.

The model's layers sleep (tests/support/slow_layers.cpp), so that times are those that the test plants, whatever else the
machine does, and any number of devices sleep at once. SLUICE_SLOW_LAYERS names that binary.

    replay_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import gzip
import json
import os
import pathlib
import statistics
import sys
import tempfile
import unittest

import hosts
import long_tests
import sluice_cli as cli
import trace_rules

SLOW_LAYERS = os.environ["SLUICE_SLOW_LAYERS"]
STEPS = 7
TRACED = "4..6"  # the first ones are slower

# A sleep overshoots by 0.1 ms or so, and what a step computes besides takes a few ms on a machine that does other things;
# steps here take 60 ms and more, what is planted a sixth of them and more.
NEAR = 0.07


def json_of(*arguments):
    return json.loads(cli.must_run("replay", *arguments, "--json").stdout)


def median_ms(run_dir):
    return statistics.median(line["step_ms"] for line in cli.events(run_dir, "step") if 4 <= line["step"] <= 6)


class ReplayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))  # for the runs of train_shape()

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def train(self, name, forward, backward, processes=1, slower_rank=None, **tables):
        """A run of the model that sleeps; forward, backward: ms of the four layers. slower_rank: (rank, its forward)."""
        return self.train_in(self.folder, name, forward, backward, processes, slower_rank, **tables)

    def train_shape(self, shape):
        """The run of that shape, which several tests read."""
        processes, tables = self.SHAPES[shape]
        run_dir = self.shared / shape
        if not run_dir.exists():
            self.train_in(self.shared, shape, (5, 5, 5, 5), (10, 10, 10, 10), processes, **tables)
        return run_dir

    def train_in(self, folder, name, forward, backward, processes, slower_rank=None, **tables):
        pipeline = dict(tables.get("pipeline", {}))
        if "stages" in pipeline:  # with "auto" slower layers would be cut in another way
            pipeline["partition"] = [1, 1, 1, 1] if pipeline.get("schedule") in ("interleaved", "zb-v") else [2, 2]
        config = cli.write_config(
            folder / f"{name}.toml",
            **{"device": {"list": "cpu", "threads": 1}, "model": {"name": "sleepers", "image_size": 8},
               "data": {"name": "shapes", "samples": 256}, "train": {"steps": STEPS, "global_batch": 16, "lr": 0.01},
               "checkpoint": {"every_steps": 0}} | tables | {"pipeline": pipeline})
        times = {"SLEEP_FORWARD_MS": ",".join(map(str, forward)), "SLEEP_BACKWARD_MS": ",".join(map(str, backward))}
        environments = {rank: dict(times) for rank in range(processes)}
        if slower_rank:
            environments[slower_rank[0]]["SLEEP_FORWARD_MS"] = ",".join(map(str, slower_rank[1]))
        run_dir = folder / name
        binary, cli.BINARY = cli.BINARY, SLOW_LAYERS
        try:
            words = ("train", config, "--trace", TRACED)
            if processes == 1:
                started = [cli.start(*words, "--run-dir", run_dir, env=cli.environment_without_launchers() | times)]
            else:
                started = cli.start_ranks(processes, *words, arguments_of={0: ["--run-dir", run_dir]},
                                          environments_of=environments)
            done = cli.finish_all(started)
        finally:
            cli.BINARY = binary
        self.assertEqual([process.returncode for process in done], [0] * processes, done[0].stderr)
        return run_dir

    def assert_adds_up(self, replay):
        """Parts of every device, recorded and replayed, and the path: each is the whole step."""
        self.assertAlmostEqual(sum(part["ms"] for part in replay["path"]), replay["replayed_ms"], delta=0.001)
        self.assertAlmostEqual(sum(part["share"] for part in replay["path"]), 1, delta=0.001)
        for place in replay["places"]:
            if place["rank"] > 0:
                continue  # its steps begin and end when they do
            for which, step in (("recorded", "recorded_ms"), ("replayed", "replayed_ms")):
                self.assertAlmostEqual(sum(place[which].values()), replay[step], delta=0.001)

    SHAPES = {
        "one stage": (1, {}),
        "gpipe": (1, {"pipeline": {"stages": 2, "chunks": 3, "schedule": "gpipe"}}),
        "1f1b": (1, {"pipeline": {"stages": 2, "chunks": 4, "schedule": "1f1b"}}),
        "zb-h1": (1, {"pipeline": {"stages": 2, "chunks": 4, "schedule": "zb-h1"}}),
        "interleaved": (1, {"pipeline": {"stages": 2, "chunks": 4, "schedule": "interleaved"}}),
        "zb-v": (1, {"pipeline": {"stages": 2, "chunks": 4, "schedule": "zb-v"}}),
        "two replicas": (1, {"pipeline": {"stages": 2, "chunks": 2}, "replicas": {"local": 2}}),
        "two processes": (2, {"pipeline": {"stages": 2, "chunks": 2}, "replicas": {"bucket_mb": 0.01}}),
    }

    def shapes(self, *in_ci):
        return long_tests.some(in_ci, list(self.SHAPES), "the other schedules")

    def test_an_unedited_step_is_the_recorded_one_and_its_waiting_is_understood(self):
        for shape in self.shapes("1f1b", "two processes"):
            with self.subTest(shape):
                run_dir = self.train_shape(shape)
                recorded = []
                for step in (4, 5, 6):
                    replay = json_of(run_dir, "--step", step)
                    (line,) = [line for line in cli.events(run_dir, "step") if line["step"] == step]
                    self.assertAlmostEqual(replay["recorded_ms"], line["step_ms"], delta=0.001)
                    self.assertAlmostEqual(replay["unedited_ms"], replay["recorded_ms"], delta=0.02 * line["step_ms"])
                    self.assert_adds_up(replay)
                    own = [place["recorded"] for place in replay["places"] if place["rank"] == 0]
                    for key, columns in (("compute_ms", ("forward_ms", "backward_ms")), ("transfer_ms", ("transfer_ms",)),
                                         ("optimizer_ms", ("optimizer_ms",)), ("load_ms", ("load_ms",))):
                        self.assertAlmostEqual(statistics.mean(place[key] for place in own),
                                               sum(line[column] for column in columns), delta=0.001)
                    # Neighbours are waited for until they have sent, and a moment longer.
                    self.assertLess(replay["waited_after_sending_ms"], 0.1 * replay["waited_ms"] + 2)
                    recorded.append(replay["recorded_ms"])
                self.assertEqual(json_of(run_dir)["recorded_ms"], sorted(recorded)[1])

    def assert_replays_as(self, run_dir, slowed, *edits):
        """Replayed with the edits, the run's steps take what those of `slowed` took."""
        replayed = statistics.median(json_of(run_dir, "--step", step, *edits)["replayed_ms"] for step in (4, 5, 6))
        wanted = median_ms(slowed)
        print(f"{run_dir.name}: {median_ms(run_dir):.1f} ms; with {' '.join(edits)} replayed {replayed:.1f}, "
              f"run {wanted:.1f} ms", file=sys.stderr)
        self.assertGreater(abs(wanted - median_ms(run_dir)), 2 * NEAR * wanted, "what was planted is not to be seen")
        self.assertAlmostEqual(replayed, wanted, delta=NEAR * wanted)

    def test_a_stage_that_is_made_slower_is_what_the_edit_says(self):
        for shape in self.shapes("two processes"):
            processes, tables = self.SHAPES[shape]
            stages = {"one stage": 1, "interleaved": 4, "zb-v": 4}.get(shape, 2)
            last = stages - 1
            of_last = 4 // stages  # layers
            with self.subTest(shape):
                run_dir = self.train_shape(shape)
                forward = [5] * (4 - of_last) + [12] * of_last
                slowed = self.train(f"to {shape}", forward, (10, 10, 10, 10), processes, **tables)
                self.assert_replays_as(run_dir, slowed, "--add", f"stage:{last},forward={7 * of_last}ms")

    def test_a_faster_stage_and_backward_by_their_factors(self):
        tables = {"pipeline": {"stages": 2, "chunks": 4, "schedule": "1f1b"}}
        run_dir = self.train("plain", (6, 6, 12, 12), (12, 12, 12, 12), **tables)
        edits = (("stage:1=0.5", (6, 6, 6, 6), (12, 12, 6, 6)), ("backward=0.3333", (6, 6, 12, 12), (4, 4, 4, 4)),
                 ("device:cpu:0=3", (18, 18, 12, 12), (36, 36, 12, 12)))
        for edit, forward, backward in long_tests.some(edits[:1], edits, "tests/profiler replays the other edits"):
            self.assert_replays_as(run_dir, self.train(edit, forward, backward, **tables), "--scale", edit)

    @long_tests.only("one more edit of two processes")
    def test_a_slower_process_is_waited_for_by_all(self):
        tables = {"pipeline": {"chunks": 2}}
        run_dir = self.train("plain", (5, 5, 5, 5), (10, 10, 10, 10), 2, **tables)
        slowed = self.train("slowed", (5, 5, 5, 5), (10, 10, 10, 10), 2, slower_rank=(1, (15, 15, 5, 5)), **tables)
        self.assert_replays_as(run_dir, slowed, "--add", "rank:1,forward=20ms")
        edited = json_of(run_dir, "--add", "rank:1,forward=20ms")
        self.assertEqual({part["rank"] for part in edited["path"] if part["what"] == "forward"}, {1})

    def test_the_path_names_who_makes_the_step_long(self):
        run_dir = self.train("plain", (2, 2, 20, 20), (4, 4, 10, 10), pipeline={"stages": 2, "chunks": 4})
        first = json_of(run_dir)["path"][0]
        self.assertEqual((first["what"], first["stage"]), ("forward", 1))
        self.assertAlmostEqual(first["ms"], 4 * 40, delta=8)
        text = cli.must_run("replay", run_dir, "--scale", "stage:1=0.1").stdout
        self.assertRegex(text, r"with --scale stage:1=0\.1 \d+\.\d\d ms \(-\d+\.\d %\)")
        self.assertRegex(text, r"rank 0 replica 0: cpu:1 +recorded")

    def test_sums_over_processes_tell_their_bytes(self):
        run_dir = self.train_shape("two processes")
        parameters = 64 * 192 + 64 + 2 * (64 * 64 + 64) + 10 * 64 + 10
        for rank in (0, 1):
            trace = trace_rules.read(run_dir / f"trace.rank{rank}.json.gz")
            sums = [bar for (step, _, _), bar in trace_rules.sums(trace).items() if step == 5]
            self.assertGreater(len(sums), 2)
            self.assertEqual(sum(bar["args"]["bytes"] for bar in sums), 4 * parameters)

    @long_tests.only("two runs over a slow network; tests/profiler replays sums over another network")
    @unittest.skipIf(hosts.missing(), f"no second host: {hosts.missing()}")
    def test_another_network(self):
        """Two hosts and 465 KB of gradients: at 20 Mbit/s their sums take 186 ms."""
        def train_at(rate):
            config = cli.write_config(
                self.folder / f"{rate}.toml", device={"list": "cpu", "threads": 1}, model={"name": "mlp", "image_size": 16},
                data={"name": "shapes", "samples": 256}, train={"steps": STEPS, "global_batch": 32, "lr": 0.01},
                replicas={"connect_timeout_s": 60, "bucket_mb": 0.2})
            with hosts.Hosts(rate) as pair:
                done = cli.finish_all([pair.start(i, "train", config, "--trace", TRACED, "--run-dir",
                                                  self.folder / (rate if i == 0 else "none"), cwd=self.folder)
                                       for i in range(2)])
            self.assertEqual([process.returncode for process in done], [0, 0], done[0].stderr + done[1].stderr)
            return self.folder / rate

        slow, fast = train_at("20mbit"), train_at("80mbit")
        # The wire carries headers too, some 5 %; the shortest sum stands for what each costs besides.
        for run_dir, rate, other in ((slow, "80Mbit/s", fast), (fast, "20Mbit/s", slow)):
            replayed = statistics.median(json_of(run_dir, "--step", step, "--bandwidth", rate)["replayed_ms"]
                                         for step in (4, 5, 6))
            print(f"{run_dir.name}: {median_ms(run_dir):.1f} ms; at {rate} replayed {replayed:.1f}, "
                  f"run {median_ms(other):.1f} ms", file=sys.stderr)
            self.assertAlmostEqual(replayed, median_ms(other), delta=0.2 * median_ms(other))

    def refused(self, code, sentence, *arguments):
        done = cli.run("replay", *arguments)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertIn(sentence, cli.error_of(done))
        return done

    def test_what_cannot_be_replayed_is_refused(self):
        run_dir = self.train_shape("1f1b")
        edits = (("stage:1", "give WHAT=CHANGE"), ("forwards=2", "did you mean 'forward'?"), ("forward=nan", "is not a factor"),
                 ("device:cpu:7=2", "has no such work"), ("stage:one=2", "'one' is not the number of a stage"),
                 ("stage:-1=2", "is not the number of a stage"), ("stage:1,stage:0=2", "two of stage"),
                 ("forward,backward=2", "two of the kinds"), ("forward=fast", "'fast' is not a factor"),
                 ("forward=-1", "is not a factor"), ("=2", "give WHAT=CHANGE"), ("stage:=2", "is not the number"),
                 ("device:=2", "neither stage:N"), ("stage:2=2", "has no such work"), ("weight-gradient=2", "has no such work"),
                 ("rank:1=2", "has no such work"))
        for edit, sentence in long_tests.some(edits[:3], edits, "one of each kind"):
            done = self.refused(2, f"--scale {edit}: ", run_dir, "--scale", edit)
            self.assertIn(sentence, cli.error_of(done))
        others = ((("--add", "forward=5"), "is not a time"), (("--bandwidth", "10"), "10Gbit/s"),
                  (("--bandwidth", "1Gbit/s"), "no all-reduce over processes"), (("--step", "9"), "from 4 to 6"),
                  (("--add", "forward=5 min"), "is not a time"), (("--bandwidth", "0Gbit/s"), "above 0"),
                  (("--latency", "5us"), "--latency needs --bandwidth"),
                  (("--bandwidth", "1Gbit/s", "--latency", "5"), "ns, us, ms or s"), (("--step", "x"), "--step"))
        for words, sentence in long_tests.some(others[:3], others, "one of each kind"):
            self.refused(2, sentence, run_dir, *words)
        self.refused(2, "TRACE", *())
        empty = self.folder / "empty"
        empty.mkdir()
        self.refused(2, "--trace 10..14", empty)
        self.refused(2, "cannot be opened", self.folder / "none.json")

    def test_files_that_are_no_whole_trace_are_refused(self):
        run_dir = self.train("plain", (1, 1, 1, 1), (1, 1, 1, 1), 2)
        files = [run_dir / f"trace.rank{rank}.json.gz" for rank in (0, 1)]
        self.assertEqual(json_of(*reversed(files))["recorded_ms"], json_of(run_dir)["recorded_ms"])
        self.refused(2, "the trace of rank 1 of 2 processes is missing", files[0])
        if long_tests.RUN:
            self.refused(2, "the trace of rank 0 of 2 processes is missing", files[1])
            self.refused(2, "another one is given twice", files[0], files[0], files[1])
        text = gzip.decompress(files[0].read_bytes())
        cut = self.folder / "cut.json.gz"
        damages = (files[0].read_bytes()[:-200], gzip.compress(text[:-200]), b"", text[:300], b"\x1f\x8b\x08broken")
        for damaged in long_tests.some(damages[:2], damages, "cut within the compressed and within the plain text"):
            cut.write_bytes(damaged)
            self.refused(3, "is damaged or was cut", cut, files[1])
        cut.write_text('{"traceEvents": []}')
        self.refused(3, "is not a trace that", cut, files[1])
        other = self.train_shape("two processes")
        self.refused(2, "belong to different runs", files[0], other / "trace.rank1.json.gz")
        trace = json.loads(text)
        trace["traceEvents"] = [event for event in trace["traceEvents"] if "ProfilerStep" not in event["name"]]
        cut.write_text(json.dumps(trace))
        self.refused(3, "no complete step", cut, files[1])

    def test_a_plain_file_of_profile_is_read_too(self):
        config = cli.write_config(self.folder / "run.toml", device={"list": "cpu", "threads": 1},
                                  model={"name": "mlp", "image_size": 8}, data={"name": "shapes", "samples": 64},
                                  train={"steps": STEPS, "global_batch": 16}, profile={"steps": 3})
        file = self.folder / "steps.json"
        cli.must_run("profile", config, "--out", self.folder / "profile.json", "--trace", file)
        replay = json_of(file)
        self.assertAlmostEqual(replay["unedited_ms"], replay["recorded_ms"], delta=0.02 * replay["recorded_ms"])


if __name__ == "__main__":
    unittest.main()
