#!/usr/bin/env python3
"""What the helpers of scripts/gpu_check.sh make of numbers, records and logs; nothing here needs a GPU."""

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import long_tests
from script_copy import REPOSITORY, ScriptCopy

sys.path[:0] = [str(REPOSITORY / "scripts"), str(REPOSITORY / "bench")]
import cupti_check  # noqa: E402
import gpu  # noqa: E402
import gpu_measure  # noqa: E402
import gpu_record  # noqa: E402


def steps(*times, load=1.0, between=0.0, **more):
    """Lines of metrics.jsonl: steps of so many milliseconds, the first of which are the warm-up, one after another."""
    return [{"event": "plan", "time_s": 0.0}] + [
        {"event": "step", "time_s": sum(times[:i + 1]) / 1e3 + (i + 1) * between / 1e3, "samples": 64, "step_ms": time,
         "load_ms": load, "samples_per_s": 64e3 / time, "flops_per_s": 5e9 * 64e3 / time, **more} for i, time in enumerate(times)]


class MeasureTest(unittest.TestCase):
    def test_a_product_is_two_operations_a_multiply_add(self):
        self.assertAlmostEqual(gpu_measure.tflops((1000, 2000, 500), 1e-3), 2.0)

    def test_the_step_leaves_the_warm_up_and_the_load_out(self):
        self.assertEqual(gpu_measure.step_ms(steps(*[900] * 5, 11, 13, 90)), 12)
        with self.assertRaisesRegex(gpu_measure.CheckFailed, "no more than 5 steps"):
            gpu_measure.step_ms(steps(1, 2, 3))

    def kernels(self):
        rows = [{"kernel": "gemm(float*)", "calls": 40, "time_ms": 60.0, "phase": "forward"},
                {"kernel": "gemm(float*)", "calls": 20, "time_ms": 20.0, "phase": "backward"},
                {"kernel": "relu(float*)", "calls": 10, "time_ms": 10.0, "phase": "forward"}]
        return {"event": "kernels", "steps": 10, "rows": rows, "rest_ms": 10.0}

    def test_kernels_are_summed_over_phases_and_the_rest_is_idle(self):
        table, result = gpu_measure.kernel_summary([*steps(*[9] * 5, *[21] * 3), self.kernels()])
        self.assertEqual(len(table), 2)
        self.assertRegex(table[0], r"8\.000 ms a step\s+6\.0 calls\s+gemm")
        self.assertEqual(result, "kernels 10.00 ms of a step of 20.00 ms, idle 50%; gemm 80%, relu 10%")

    def test_without_records_there_are_no_kernels(self):
        with self.assertRaisesRegex(gpu_measure.CheckFailed, "CUPTI"):
            gpu_measure.kernel_summary(steps(*[9] * 8))

    def test_recording_compares_within_rounds(self):
        # A machine that is twice as slow in the second round says nothing about recording.
        text = gpu_measure.turns_summary({"off": [10, 20, 10], "events": [10, 20, 10], "cupti": [11, 22, 11]})
        self.assertEqual(text, "off 10.00 ms, events 10.00 ms (x 1.000), cupti 11.00 ms (x 1.100)")

    def fake_train(self, folder, step_ms, load_ms):
        """A training command whose steps take so long, by expressions of `off` and `cupti`."""
        fake = pathlib.Path(folder) / "train.py"
        fake.write_text("import json, pathlib, sys\n"
                        "off, cupti = ('off' in sys.argv[-3]), ('cupti' in sys.argv[-3])\n"
                        "run = pathlib.Path(sys.argv[-1]); run.mkdir(parents=True)\n"
                        f"line = json.dumps({{'event': 'step', 'step_ms': {step_ms}, 'load_ms': {load_ms}}})\n"
                        "(run / 'metrics.jsonl').write_text((line + '\\n') * 7)\n", encoding="utf-8")
        return fake

    def test_recording_runs_each_level_in_turn(self):
        with tempfile.TemporaryDirectory() as folder:
            fake = self.fake_train(folder, step_ms="20 if cupti else 10", load_ms="None if off else 0.1")
            out = pathlib.Path(folder) / "out"
            text = gpu_measure.recording(out, sys.executable, str(fake))
            self.assertEqual(text, "off 10.00 ms, events 10.00 ms (x 1.000), cupti 20.00 ms (x 2.000)")
            self.assertEqual(len(list(out.iterdir())), 9)
            # With "off" it ends well, whose records are there already; with "events" it ends with 4.
            fake.write_text("import sys; sys.exit(4 if 'events' in sys.argv[-3] else 'off' not in sys.argv[-3])", encoding="utf-8")
            fake_run = pathlib.Path(folder) / "again" / "off-0"
            fake_run.mkdir(parents=True)
            (fake_run / "metrics.jsonl").write_text((out / "off-0" / "metrics.jsonl").read_text(encoding="utf-8"), encoding="utf-8")
            with self.assertRaisesRegex(gpu_measure.CheckFailed, "with events ended with exit code 4"):
                gpu_measure.recording(fake_run.parent, sys.executable, str(fake))

    def test_settings_and_idle_time_are_of_one_run_each(self):
        with tempfile.TemporaryDirectory() as folder:
            fake = pathlib.Path(folder) / "train.py"
            kernels = json.dumps(self.kernels())
            fake.write_text("import json, pathlib, sys\n"
                            "keys = dict(word.split('=', 1) for word in sys.argv if '=' in word)\n"
                            "step_ms = 20 if 'train.clip_norm' in keys or keys.get('device.cuda_graphs') == 'false' else 10\n"
                            "run = pathlib.Path(sys.argv[-1]); run.mkdir(parents=True)\n"
                            "line = json.dumps({'event': 'step', 'step_ms': step_ms, 'load_ms': 0})\n"
                            f"(run / 'metrics.jsonl').write_text((line + '\\n') * 7 + {kernels!r})\n", encoding="utf-8")
            text = gpu_measure.settings(pathlib.Path(folder) / "settings", sys.executable, str(fake))
            self.assertEqual(text.split(", ")[:3], ["plain 10.00 ms", "clip_norm 20.00 ms (x 2.000)", "no_decay 10.00 ms (x 1.000)"])
            text = gpu_measure.idle(pathlib.Path(folder) / "idle", sys.executable, str(fake))
            names = ["1 micro-batch", "1 micro-batch in graphs", "8 micro-batches", "8 micro-batches in graphs"]
            self.assertEqual([part.split(":")[0] for part in text.split("; ")], names)
            self.assertIn("of a step of 20.00 ms", text.split("; ")[0])

    def test_recording_costs_cannot_be_seen_where_steps_wait_for_data(self):
        with tempfile.TemporaryDirectory() as folder:
            fake = self.fake_train(folder, step_ms="25", load_ms="13 if cupti else 1")
            with self.assertRaisesRegex(gpu_measure.CheckFailed, "steps with cupti wait 52% of their time for data"):
                gpu_measure.recording(pathlib.Path(folder) / "out", sys.executable, str(fake))

    def test_memory_is_short_where_less_was_predicted(self):
        def profile(predicted):
            return {"device_memory": [{"device": "cuda:0", "peak_bytes": 100 << 20, "predicted_peak_bytes": predicted << 20}]}

        self.assertEqual(gpu_measure.memory_summary(profile(110)), "cuda:0: predicted 110 MiB, took 100 MiB (x 1.10)")
        with self.assertRaisesRegex(gpu_measure.CheckFailed, "predicted 80 MiB, took 100 MiB"):
            gpu_measure.memory_summary(profile(80))
        with self.assertRaisesRegex(gpu_measure.CheckFailed, "no memory"):
            gpu_measure.memory_summary({"device_memory": []})

    def test_the_predicted_step_says_how_layers_were_timed(self):
        layers = [{"name": "a", "times": [{"timed_by": "cupti", "gpu": {"launch_bound": True}}]},
                  {"name": "b", "times": [{"timed_by": "clock"}, {"timed_by": "events", "gpu": {"launch_bound": False}}]}]
        text = gpu_measure.predicted_summary({"step": {"predicted_s": 0.009, "median_s": 0.03, "median_without_load_s": 0.01}, "layers": layers})
        self.assertEqual(text, "predicted 9.00 ms, measured without load 10.00 ms (x 0.90); layers timed by cupti, events, launch-bound 1 of 2")

    def test_warnings_are_told_once(self):
        found = gpu_measure.warnings_of({"b": "12:00 Warning: slow\n12:01 Warning: slow\nfine\n", "a": "x.py:3: UserWarning: old\n"})
        self.assertEqual(found, ["a: x.py:3: UserWarning: old", "b: 12:00 Warning: slow"])

    def test_the_command(self):
        def run(*arguments):
            return subprocess.run([sys.executable, REPOSITORY / "scripts" / "gpu_measure.py", *arguments], capture_output=True,
                                  text=True, check=False)

        self.assertEqual(run().returncode, 2)
        self.assertEqual(run("colors").returncode, 2)
        self.assertEqual(run("memory").returncode, 2)
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "a.log").write_text("one warning here\n", encoding="utf-8")
            done = run("warnings", folder)
            self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (0, "result: 1: a: one warning here"))
            lines = [*steps(*[9] * 5, *[21] * 3), self.kernels()]
            (pathlib.Path(folder) / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
            self.assertEqual(run("kernels", folder).returncode, 0)
            (pathlib.Path(folder) / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines[:-1])), encoding="utf-8")
            self.assertEqual(run("kernels", folder).returncode, 70)


class CuptiCheckTest(unittest.TestCase):
    KERNELS = {"dropped": 0, "without_times": 0, "without_launch": 0, "late": 0, "disagreements": 0}

    def defects(self, events, cupti, **kernels):
        names = (*cupti_check.PHASES, "step_ms")
        return list(cupti_check.defects(dict(zip(names, events)), dict(zip(names, cupti)), self.KERNELS | kernels))

    def test_phases_agree_within_three_percent(self):
        self.assertEqual(self.defects((3, 6, 0.01, 10), (3.05, 6, 0.02, 10)), [])
        self.assertEqual(len(self.defects((3, 6, 1, 10), (3.2, 6.5, 1.1, 10))), 3)
        self.assertEqual(self.defects((3, 6, 1, 10), (3, 6, 1, 10), late=2), ["late: 2"])

    def test_gaps_between_kernels_are_in_events_alone(self):
        rows = [{"phase": "forward", "calls": 200, "time_ms": 2.8}, {"phase": "backward", "calls": 900, "time_ms": 6}]
        self.assertEqual(self.defects((3, 6, 1, 10), (2.8, 6, 1, 10), rows=rows, steps=1), [])
        self.assertEqual(len(self.defects((3, 6, 1, 10), (2.8, 6, 1, 10), rows=rows, steps=10)), 1, "20 kernels a step")
        self.assertEqual(len(self.defects((3, 6, 1, 10), (3, 6, 0.8, 10), rows=rows, steps=1)), 1, "kernels of other phases")
        self.assertEqual(len(self.defects((2.8, 6, 1, 10), (3, 6, 1, 10), rows=rows, steps=1)), 1, "CUPTI has no gaps")
        self.assertEqual(len(self.defects((3, 1, 1, 10), (3, 0.1, 1, 10), rows=rows, steps=1)), 1, "most was not seen")

    def test_what_one_side_does_not_see_or_what_is_no_number_fails(self):
        self.assertRegex(self.defects((0.05, 6, 1, 10), (6, 6, 1, 10))[0], "forward_ms is 6.000 ms by CUPTI and 0.050")
        self.assertEqual(len(self.defects((3, 6, 1, 10), (float("nan"), 6, 1, 10))), 1)
        self.assertEqual(len(self.defects((float("nan"), 6, 1, 10), (3, 6, 1, 10))), 1)
        self.assertEqual(self.defects((0, 0, 0, 10), (0, 0, 0, 10)), ["no phase is long enough to be compared"])

    def test_the_step_is_without_its_load(self):
        lines = steps(*[900] * 5, 20, 20, load=15.0, forward_ms=1, backward_ms=2, optimizer_ms=1)
        self.assertEqual(cupti_check.medians(lines)["step_ms"], 5)


class CompareTest(unittest.TestCase):
    def test_our_rate_leaves_the_wait_for_data_out(self):
        rate, flop = gpu.rate_of(steps(*[900] * 5, 17, 17, 17))
        self.assertAlmostEqual(rate, 4000, places=6)
        self.assertAlmostEqual(flop, 5e9, delta=1)
        with self.assertRaises(gpu_measure.CheckFailed):
            gpu.rate_of(steps(1, 2))

    def test_a_slow_step_and_the_time_between_steps_count_as_they_do_for_the_peers(self):
        rate, _ = gpu.rate_of(steps(*[900] * 5, 10, 10, 100, load=0.0, between=2.0))
        self.assertAlmostEqual(rate, 3 * 64 / 0.126, places=6)  # 64 samples three times in 10 + 10 + 100 + 3 x 2 ms

    def test_without_pytorchs_own_steps_there_is_no_comparison(self):
        peers = gpu.peer_command
        self.addCleanup(setattr, gpu, "peer_command", peers)
        gpu.peer_command = lambda *_: [sys.executable, "-c", "import sys; sys.exit(3)"]
        with self.assertRaisesRegex(ValueError, "nothing to compare with"):
            gpu.compare("resnet50", "nowhere", "cuda")

    def test_the_summary(self):
        rates = {"ours": [1000, 2000, 1100], "eager": [500, 1000, 550], "torch.compile": []}
        text = gpu.summary(rates, 100e9, 494)
        self.assertEqual(text, "ours 1100 samples/s, MFU 22.3%; eager 550 samples/s, MFU 11.1%, ours x 2.00; torch.compile: not available")
        self.assertIn("110.0 model TFLOP/s", gpu.summary(rates, 100e9, None))

    def test_the_first_name_that_fits_has_the_peak(self):
        self.assertEqual([gpu.peak_of(name, "bf16") for name in ("NVIDIA H100 PCIe", "NVIDIA H100 80GB HBM3", "NVIDIA H200 NVL", "NVIDIA H200", "Tesla T4")],
                         [756, 989, 835, 989, None])
        self.assertEqual(gpu.peak_of("NVIDIA H200", "fp32"), 494.5)

    def test_a_peer_that_does_not_start_is_not_available(self):
        peer = gpu.Peer("eager", [sys.executable, "-c", "import sys; sys.exit(3)"])
        self.assertIsNone(peer.rate(patience_s=30))
        peer.process.stdout.close()
        self.assertIsNotNone(peer.process.returncode)

    def test_the_list(self):
        done = subprocess.run([sys.executable, REPOSITORY / "bench" / "gpu.py", "--list"], capture_output=True, text=True,
                              check=True)
        self.assertEqual(done.stdout.split(), list(gpu.CHECKED))
        self.assertLessEqual(set(gpu.CHECKED), set(gpu.MODELS))


@unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
class PeerTest(unittest.TestCase):
    @long_tests.only("15 s")
    def test_it_answers_each_line_with_the_rate_of_a_step_that_learns(self):
        done = subprocess.run(
            [sys.executable, REPOSITORY / "bench" / "peer_gpu.py", '{"name": "vit", "size": "nano", "patch": 16}', "4", "64", "3",
             "--device", "cpu"], input="run\n" * 3, capture_output=True, text=True, check=True)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(len(answers), 3)
        self.assertGreater(min(answer["samples_per_s"] for answer in answers), 0)
        self.assertLess(answers[-1]["loss"], answers[0]["loss"])


PAGE = """# Page

| check | what | last result |
|---|---|---|
| `copies` | bandwidth | not run yet |
| `rates` | products | not run yet |

After it.
"""


def row(check, result, date="2026-11-24"):
    return f"| {date} | H100 | 580.1 | shape | `{check}` | {result} |"


class RecordTest(unittest.TestCase):
    def test_rows_are_added_and_the_last_result_is_shown(self):
        page = gpu_record.recorded(PAGE, row("copies", "passed after 3 s; 50 GB/s") + "\n")
        self.assertIn("| `copies` | bandwidth | 2026-11-24, H100: passed after 3 s; 50 GB/s |", page)
        self.assertIn("| `rates` | products | not run yet |", page)
        self.assertIn("After it.\n\n## Results\n\n" + gpu_record.COLUMNS + row("copies", "passed after 3 s; 50 GB/s"), page)
        later = gpu_record.recorded(page, row("copies", "FAILED (exit code 1) after 2 s", "2026-12-01"))
        self.assertIn("bandwidth | 2026-12-01, H100: FAILED (exit code 1) after 2 s |", later)
        rows = later.split("## Results")[1].strip().splitlines()
        self.assertEqual(len(rows), 4)
        self.assertIn("2026-12-01", rows[-1])

    def test_the_same_run_is_recorded_once(self):
        text = row("rates", "passed after 3 s")
        page = gpu_record.recorded(PAGE, text)
        self.assertEqual(gpu_record.recorded(page, text), page)

    def test_an_older_run_that_is_recorded_later_is_not_the_last_result(self):
        page = gpu_record.recorded(PAGE, row("rates", "passed after 3 s", "2026-11-25"))
        older = row("rates", "FAILED (exit code 1) after 2 s", "2026-11-20")
        for _ in range(2):
            page = gpu_record.recorded(page, older)
            self.assertIn("products | 2026-11-25, H100: passed after 3 s |", page)
        self.assertIn(older, page)

    def test_what_was_not_run_leaves_what_is_known(self):
        page = gpu_record.recorded(PAGE, row("rates", "passed after 3 s"))
        later = gpu_record.recorded(page, row("rates", "not run: out of time", "2026-12-01"))
        self.assertIn("products | 2026-11-24, H100: passed after 3 s |", later)
        self.assertIn("out of time", later)
        first = gpu_record.recorded(PAGE, row("rates", "not run: out of time"))
        self.assertIn("products | 2026-11-24, H100: not run: out of time |", first)

    def test_another_file_is_refused(self):
        for text in ("", "hello\n", row("a b", "passed")):
            with self.assertRaises(gpu_record.RecordError):
                gpu_record.recorded(PAGE, text)
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "gpu.md"
            page.write_text(PAGE, encoding="utf-8")
            script = REPOSITORY / "scripts" / "gpu_record.py"
            for arguments, code in (((), 2), ((page, pathlib.Path(folder) / "none"), 2), ((page, page), 2)):
                done = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, code, done.stderr)
            self.assertEqual(page.read_text(encoding="utf-8"), PAGE)


class CompareCommandTest(unittest.TestCase):
    def test_a_run_of_ours_that_fails_is_a_failure(self):
        """Whatever records it leaves."""
        copy = self.enterContext(ScriptCopy())
        copy.stand_in(copy.bin / "nvidia-smi", "echo 'NVIDIA H100 80GB HBM3'\n")
        copy.write("steps.jsonl", "\n".join(map(json.dumps, steps(*[9] * 20))))
        copy.write("bench/gpu.py", (REPOSITORY / "bench" / "gpu.py").read_text(encoding="utf-8"))
        copy.write("bench/peer_gpu.py", "import sys\nfor _ in sys.stdin:\n    print('{\"samples_per_s\": 1}', flush=True)\n")
        for code, expected in ((0, 0), (3, 70)):
            copy.stand_in("build/release/sluice", f'mkdir -p "${{@: -1}}"; cp steps.jsonl "${{@: -1}}/metrics.jsonl"; exit {code}\n')
            done = copy.run_by(sys.executable, copy.root / "bench" / "gpu.py", "vit_b16", copy.root / "out", cwd=copy.root)
            self.assertEqual(done.returncode, expected, done.stdout + done.stderr)
        self.assertIn("result: our run ended with exit code 3", done.stdout)


if __name__ == "__main__":
    unittest.main()
