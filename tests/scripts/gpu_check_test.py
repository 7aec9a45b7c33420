#!/usr/bin/env python3
"""scripts/gpu_check.sh with stand-ins for the GPU and the programs: its parts, their time, what counts as a failure, and
what it records."""

import pathlib
import re
import signal
import tarfile
import time
import unittest

import long_tests
from script_copy import REPOSITORY, ScriptCopy

TESTS = ("device/device_test", "data/data_feature_cache_test", "engine/engine_cuda_parity_test", "engine/engine_cuda_graphs_test", "train/train_layer_timer_test",
         "comm/comm_test", "ddp/ddp_test", "train/train_test", "engine/engine_test", "nn/nn_cuda_test",
         "pipeline/pipeline_test")
PAGE = (REPOSITORY / "docs" / "how-to" / "gpu_check.md").read_text(encoding="utf-8")
# The helpers that need PyTorch or files of runs; what records, and the list of models, are the real ones.
PYTHON = r"""case "$*" in
  *gpu_record.py*) exec /usr/bin/env -S python3 "$@" ;;
  *--list*) exec /usr/bin/env -S python3 "$@" ;;
  *'import glob'*) echo /nowhere ;;
  *'gpu_measure.py formats'*) echo 'result: with TF32 | without' ;;
  *) echo 'result: measured' ;;
esac
"""
SLUICE = r"""case "$*" in devices*) echo 'cuda:0  NVIDIA H100' ;; *memory_limit*) exit 4 ;; esac
run=
while [[ $# -gt 1 ]]; do
  [[ $1 != --run-dir ]] || run=$2
  shift
done
[[ -n $run && ${RANK:-0} == 0 ]] || exit 0
mkdir -- "$run"
"""


class GpuCheckTest(unittest.TestCase):
    def setUp(self):
        self.copy = self.enterContext(ScriptCopy())
        self.copy.write("docs/how-to/gpu_check.md", PAGE)
        self.copy.write("configs/quickstart.toml", "")
        self.copy.write("bench/gpu.py", (REPOSITORY / "bench" / "gpu.py").read_text(encoding="utf-8"))
        self.copy.stand_in(self.copy.bin / "nvidia-smi", "echo 'NVIDIA H100 80GB HBM3, 580.1'\n")
        self.copy.stand_in(self.copy.bin / "compute-sanitizer", "echo '========= ERROR SUMMARY: 0 errors'\n")
        self.copy.stand_in(".venv/bin/python", PYTHON)
        self.sluice()
        for test in TESTS:
            self.copy.stand_in(f"build/release/tests/{test}", "echo '[  PASSED  ] 1 test.'\n")

    def sluice(self, more=""):
        """It lists a GPU and refuses a directory that holds a run; one that meets a small limit of memory ends with 4."""
        self.copy.stand_in("build/release/sluice", more + SLUICE)

    def check(self, *arguments, code=0, **variables):
        done = self.copy.run("gpu_check.sh", *arguments, **variables)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return dict(line.split(": ", 1) for line in done.stdout.splitlines())

    def page(self):
        return (self.copy.root / "docs" / "how-to" / "gpu_check.md").read_text(encoding="utf-8")

    def results(self, out="build/gpu_check"):
        return (self.copy.root / out / "gpu_results.md").read_text(encoding="utf-8").splitlines()

    def test_each_part_has_its_checks_and_all_are_told_on_the_page(self):
        everything = self.check()
        of_part = {part: set() for part in ("right", "shape", "costs")}
        for row in self.results():
            of_part[row.split(" | ")[3]].add(row.split("`")[1])
        self.assertEqual({part: len(checks) for part, checks in of_part.items()}, {"right": 39, "shape": 9, "costs": 9})
        self.assertEqual(set(everything), set().union(*of_part.values()))
        table = PAGE.split("## Results")[0]
        told = {part: set(re.findall(r"^\| `([a-z0-9_]+)` \|", text, re.MULTILINE))
                for part, text in zip(("right", "shape", "costs"), re.split(r"^## (?:Right|Shape|Costs)\n", table, flags=re.MULTILINE)[1:])}
        self.assertEqual(told, of_part)

    def test_the_first_part_is_some_of_each(self):
        first = self.check("first", SLUICE_GPU_CHECK_BUDGET_S="500")
        self.assertEqual({row.split(" | ")[3] for row in self.results()}, {"first"})
        self.assertEqual(set(first.values()) - {verdict for verdict in first.values() if verdict.startswith("passed")}, set())
        known = set(re.findall(r"^\| `([a-z0-9_]+)` \|", PAGE, re.MULTILINE))
        self.assertLess(set(first), known)
        self.assertTrue({"parity", "copies", "kernel_rates", "idle", "speed_vit_b16"} < set(first))
        asked = set(re.search(r"only=\"([^\"]*)\"", (REPOSITORY / "scripts" / "gpu_check.sh").read_text(encoding="utf-8"))[1].split())
        self.assertEqual(set(first), asked, "each check that is asked for is there")

    def test_a_rehearsal_needs_no_gpu_and_records_nothing(self):
        self.copy.stand_in(self.copy.bin / "nvidia-smi", "exit 9\n")
        self.sluice("""case "$*" in devices*) echo 'cpu:0  EPYC'; exit ;; *cuda*) exit 7 ;; esac\n""")
        self.copy.stand_in("build/release/tests/nn/nn_cuda_test", "echo '[  SKIPPED ] no CUDA device is visible'\n")
        before = self.page()
        verdicts = self.check("--on-cpu", "first", "out", "back", SLUICE_GPU_CHECK_BUDGET_S="500")
        self.assertEqual({name for name, verdict in verdicts.items() if verdict == "not run: it needs a GPU"},
                         {"kernels_nn", "kernel_rates", "number_formats", "train_graphs", "product_rates", "copies", "attention_rates", "idle"})
        self.assertTrue(all(verdict.startswith(("passed", "not run: it needs a GPU")) for verdict in verdicts.values()), verdicts)
        self.assertEqual(self.page(), before)
        self.assertEqual(len((self.copy.root / "back" / "gpu_results.md").read_text(encoding="utf-8").splitlines()), len(verdicts))

    def test_little_is_brought_back_and_all_of_it(self):
        self.check("shape", "out", "back")
        back = self.copy.root / "back"
        self.assertEqual(sorted(file.name for file in back.iterdir()), ["gpu_check.txt", "gpu_results.md", "logs.tar.gz"])
        self.assertEqual((back / "gpu_results.md").read_text(encoding="utf-8").splitlines(), self.results("out"))
        with tarfile.open(back / "logs.tar.gz") as logs:
            self.assertIn("./shape/copies.log", logs.getnames())
        for bring in ("out/back", "."):
            done = self.copy.run("gpu_check.sh", "shape", "out", bring)
            self.assertEqual((done.returncode, "lie in each other" in done.stderr), (2, True), done.stderr)

    def test_what_was_shown_is_brought_back_when_it_is_ended(self):
        self.sluice('case "$*" in *run_kernels*) echo $$ >began.new; mv began.new began; exec sleep 60 ;; esac\n')
        back = self.copy.root / "back"
        with self.copy.start("gpu_check.sh", "shape", "out", "back") as process:
            deadline = time.monotonic() + 60
            while not (self.copy.root / "began").exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            self.assertIn("`copies`", (back / "gpu_results.md").read_text(encoding="utf-8"), "before the end")
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
        started = pathlib.Path("/proc") / (self.copy.root / "began").read_text(encoding="utf-8").strip()
        while started.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertFalse(started.exists(), "the check that was running has ended, too")
        with tarfile.open(back / "logs.tar.gz") as logs:
            self.assertIn("./shape/train_kernels.log", logs.getnames())

    def test_what_passed_is_recorded_with_date_gpu_and_driver(self):
        self.assertIn("not run yet", re.search(r"^\| `copies` .*$", self.page(), re.MULTILINE)[0])
        checks = self.check("shape", "my out")
        self.assertRegex(checks["copies"], r"^passed after \d+ s; measured$")
        row = next(line for line in self.results("my out") if "`copies`" in line)
        self.assertRegex(row, r"^\| \d{4}-\d\d-\d\d \| NVIDIA H100 80GB HBM3 \| 580\.1 \| shape \| `copies` \| passed after \d+ s; measured \|$")
        page = self.page()
        self.assertIn(row, page.split("## Results")[1])
        self.assertRegex(page, r"\| `copies` \|.*\| \d{4}-\d\d-\d\d, NVIDIA H100 80GB HBM3: passed after \d+ s; measured \|\n")
        self.assertIn("not run yet", re.search(r"^\| `parity` .*$", page, re.MULTILINE)[0])

    def test_a_file_that_was_brought_back_is_recorded(self):
        self.check("right")
        results = "\n".join(self.results())
        self.assertIn("with TF32 / without", results, "a column's border is no text")
        recorded = self.page()
        self.copy.write("docs/how-to/gpu_check.md", PAGE)
        self.copy.write("brought.md", results + "\n")
        done = self.copy.run("gpu_check.sh", "--record", "brought.md")
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        self.assertEqual(self.page(), recorded)
        self.copy.write("brought.md", "no results\n")
        self.assertEqual(self.copy.run("gpu_check.sh", "--record", "brought.md").returncode, 2)
        self.assertEqual(self.copy.run("gpu_check.sh", "--record").returncode, 2)
        self.assertEqual(self.page(), recorded)

    def test_a_failure_does_not_stop_the_rest(self):
        self.copy.stand_in("build/release/tests/device/device_test", "exit 3\n")
        self.copy.stand_in("build/release/tests/comm/comm_test", "echo '[  SKIPPED ] 1 test, listed below:'\n")
        checks = self.check("right", code=70)
        self.assertRegex(checks["transfer"], r"^FAILED \(exit code 3\)")
        self.assertRegex(checks["nccl_one"], r"^FAILED \(skipped\)", "a test that skips proves nothing")
        self.assertRegex(checks["parity"], "^passed")
        self.assertRegex(checks["sanitizer_races"], "^passed")
        self.assertIn("FAILED (skipped)", "\n".join(self.results()))

    def test_a_second_run_takes_nothing_of_the_first_for_its_own(self):
        everything = self.check("right", "kept") | self.check("shape", "kept") | self.check("costs", "kept")
        for verdict in everything.values():
            self.assertRegex(verdict, "^passed|two GPUs")
        again = self.check("right", "kept") | self.check("shape", "kept") | self.check("costs", "kept")
        self.assertEqual(self.without_times(again), self.without_times(everything))
        self.sluice("case \"$*\" in *run_kernels*|*run_cupti*|*memory.json*|*profile_cupti.json*|*run_grid\\ *) exit 3 ;; esac\n")
        failed = self.check("right", "kept", code=70) | self.check("shape", "kept", code=70) | self.check("costs", "kept", code=70)
        for reader, of in (("kernels", "train_kernels"), ("cupti_against_events", "train_cupti"), ("memory", "memory_profile"),
                           ("predicted_cupti", "profile_cupti"), ("eval_on_cpu", "train_grid")):
            self.assertEqual(failed[reader], f"not run: it needs {of}, which did not pass")
        self.assertRegex(failed["predicted_events"], "^passed")

    def without_times(self, checks):
        return {name: re.sub(r"after \d+ s", "", verdict) for name, verdict in checks.items()}

    def test_what_is_not_its_own_is_not_removed(self):
        self.copy.write("mine/right/notes.txt", "not to be lost")
        done = self.copy.run("gpu_check.sh", "right", "mine")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("give another OUT_DIR", done.stderr)
        self.assertEqual((self.copy.root / "mine" / "right" / "notes.txt").read_text(encoding="utf-8"), "not to be lost")

    def test_a_machine_whose_gpu_is_not_listed_fails(self):
        self.copy.stand_in("build/release/sluice", "echo cpu:0\n")
        self.assertRegex(self.check("right", code=70)["devices"], "^FAILED .*does not list cuda:0$")

    def test_either_of_two_ranks_may_fail_the_check(self):
        for rank in (0, 1):
            self.sluice(f"[[ ${{RANK:-}} != {rank} ]] || exit 9\n")
            self.assertRegex(self.check("right", code=70)["ranks_gloo"], r"^FAILED \(exit code 9\)", f"rank {rank}")

    def test_out_of_memory_has_to_end_with_4(self):
        self.assertRegex(self.check("right")["out_of_memory"], "^passed .*exit code 4$")
        self.copy.stand_in("build/release/sluice", "echo cuda:0\n")
        self.assertRegex(self.check("right", code=70)["out_of_memory"], r"^FAILED \(exit code 1\).*exit code 0$")

    def test_what_is_missing_is_no_failure(self):
        (self.copy.bin / "compute-sanitizer").unlink()
        checks = self.check("right")
        self.assertEqual(checks["sanitizer_memory"], "not run: compute-sanitizer is not installed")
        for name in ("ranks_nccl", "transfer_two", "local_sum_two"):
            self.assertEqual(checks[name], "not run: it needs two GPUs")
        self.copy.stand_in(self.copy.bin / "nvidia-smi", "echo 'H100, 580.1'; echo 'H100, 580.1'\n")
        checks = self.check("right")
        for name in ("ranks_nccl", "transfer_two", "local_sum_two"):
            self.assertRegex(checks[name], "^passed")

    def test_what_libtorch_warns_of_is_not_hidden(self):
        self.sluice('echo "result: level $TORCH_CPP_LOG_LEVEL"\n')
        self.assertRegex(self.check("right")["train_one"], "; level WARNING$")
        self.assertRegex(self.check("right", TORCH_CPP_LOG_LEVEL="INFO")["train_one"], "; level INFO$")

    @long_tests.only("13 s of waiting")
    def test_no_check_begins_when_its_parts_time_is_over(self):
        checks = self.check("shape", SLUICE_GPU_CHECK_BUDGET_S="4")
        self.assertEqual(set(checks.values()), {"not run: out of time", "not run: it needs train_kernels, which did not pass"})
        self.sluice("case \"$*\" in *devices*) sleep 60 ;; esac\n")
        checks = self.check("right", code=70, SLUICE_GPU_CHECK_BUDGET_S="6")
        self.assertRegex(checks["devices"], r"^FAILED \(not done after [56] s\)", "what is left of the part limits a check")
        self.assertEqual(checks["parity"], "not run: out of time")
        checks = self.check(code=70, SLUICE_GPU_CHECK_BUDGET_S="6")
        self.assertRegex(checks["product_rates"], "^passed", "each part has time of its own")

    def test_what_cannot_be_begun(self):
        self.assertIn("--record FILE", self.copy.run("gpu_check.sh", "--help").stdout)
        for arguments, said in ((("right", "a", "b", "c"), "'c'"), (("--fast",), "'--fast'")):
            done = self.copy.run("gpu_check.sh", *arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(said, done.stderr)
        self.copy.stand_in(self.copy.bin / "nvidia-smi", "exit 9\n")
        done = self.copy.run("gpu_check.sh", "right", "none")
        self.assertEqual((done.returncode, "no NVIDIA GPU" in done.stderr), (2, True))
        self.assertFalse((self.copy.root / "none").exists(), "nothing is left of what did not begin")
        (self.copy.root / "build" / "release" / "sluice").unlink()
        done = self.copy.run("gpu_check.sh")
        self.assertEqual((done.returncode, "bootstrap.sh" in done.stderr), (2, True))
        self.assertEqual(self.page(), PAGE)


if __name__ == "__main__":
    unittest.main()
