#!/usr/bin/env python3
"""What sluice tune, and sluice simulate CONFIG --profile, refuse or warn of.

    tune_refused_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import json
import os
import unittest

import long_tests
import sluice_cli as cli
import tuning_case


class TuneRefusedTest(tuning_case.TuningCase):
    TABLES = {"device": {"list": "cpu", "threads": 1}, "model": {"name": "toy_cnn", "image_size": 16},
              "data": {"name": "shapes", "samples": 96}, "train": {"steps": 4, "global_batch": 16},
              "pipeline": {"stages": 2, "chunks": 2}, "profile": {"steps": 2}}

    def test_a_profile_without_a_layer_is_refused(self):
        profile = json.loads(self.profile().read_text(encoding="utf-8"))
        del profile["layers"][1]
        edited = self.folder / "edited.json"
        edited.write_text(json.dumps(profile), encoding="utf-8")
        self.assert_refused(2, "has 3 layers, but toy_cnn has 4",
                            words=("--out", self.out, "--profile", edited, "--verify", 0))
        self.assert_refused(2, "has 3 layers, but toy_cnn has 4", command=("simulate",), words=("--profile", edited))
        profile = json.loads(self.profile().read_text(encoding="utf-8"))
        for layer in profile["layers"]:
            layer["bytes"] = []
        edited.write_text(json.dumps(profile), encoding="utf-8")
        self.assert_refused(2, "lacks the memory of its layers", command=("memory",),
                            words=("--profile", edited, "--limit", "1GiB"))

    def test_what_cannot_be_tuned_is_refused(self):
        profile = self.profile()
        self.assert_refused(2, "is not a key that tune changes", "pipeline.chunks", words=("--out", self.out, "--keep", "train.lr"))
        other = self.configuration("other", model={"name": "mlp"})
        self.assert_refused(2, "model.name toy_cnn", config=other, words=("--out", self.out, "--profile", profile))
        self.assert_refused(2, "needs --profile", command=("simulate",))
        self.assert_refused(2, "needs as many devices", command=("simulate",), words=("--profile", profile, "--nodes", 1))
        self.assert_refused(2, "is not a layer profile", command=("simulate",), words=("--profile", self.folder / "no.json")
                            if (self.folder / "no.json").write_text("{}") else ())
        self.assert_refused(2, "of 1 thread a device", "2", command=("simulate",),
                            words=("--profile", profile, "--set", "device.threads=2"))
        self.assert_refused(2, "measured with train.optimizer momentum", "adam", command=("simulate",),
                            words=("--profile", profile, "--set", "train.optimizer=adam"))
        self.assert_refused(2, "CUDA", words=("--out", self.out, "--profile", profile, "--set", "device.list=['cuda:63','cuda:63']"))
        options = (("--bandwidth", "bandwidth"), ("--latency", "time"), ("--inside-bandwidth", "bandwidth"))
        for option, what in long_tests.some(options[:2], options, "one more bandwidth"):
            values = ("nan", "10Gbit", "-1", "1 parsec", "1e308GB/s" if what == "bandwidth" else "1e308 h")
            for value in long_tests.some(values[:1], values, "others that are none"):
                self.assert_refused(2, f"{option}: '{value}' is not a {what}; give a number", command=("simulate",),
                                    words=("--profile", profile, "--nodes", 4, f"{option}={value}"))
        self.assert_refused(2, "--bandwidth: '0Gbit/s' is not a bandwidth", command=("simulate",),
                            words=("--profile", profile, "--nodes", 4, "--bandwidth", "0Gbit/s"))
        self.assert_refused(2, "--budget: 'nan' is not in range 1 to", words=("--out", self.out, "--budget", "nan"))
        lone = (("--bandwidth", 1), ("--noise", 1), ("--workers", 4))
        for words in long_tests.some(lone[:1], lone, "other options"):
            self.assert_refused(2, f"{words[0]} requires", command=("simulate",), words=("--profile", profile, *words))
        self.assert_refused(4, "no plan fits in", "90 % of device.memory_limit", "needs", words=("--out", self.out, "--profile", profile, "--verify", 0,
                                                               "--set", "device.memory_limit=2KiB"))
        self.assert_refused(2, "tune cannot plan replicas.sync", words=("--out", self.out, "--set", "replicas.sync=ps", "--set", "ps.workers=2"))
        self.assert_refused(4, "no plan fits in", "90 % of device.memory_limit", "needs", words=("--out", self.out, "--profile", profile, "--verify", 0,
                                                               "--memory", "2KiB"))
        measuring = cli.run("tune", self.config, "--out", self.folder)
        self.assertEqual(measuring.returncode, 8)
        self.assertNotIn("measuring", measuring.stderr, "what cannot be written is known before")
        self.assert_refused(2, "--out", words=("--out", self.config, "--profile", profile))
        self.assertIn("toy_cnn", self.config.read_text(encoding="utf-8"), "an input was overwritten")

    def test_what_ends_in_no_configuration_is_refused_before_it_is_measured(self):
        words = ("--out", self.out, "--budget", 60)
        self.assert_refused(2, "pipeline.changes apply to the configured plan", words=(*words, "--set", "pipeline.changes=['2: chunks = 4']"))
        self.assert_refused(2, "the profile", "is of 1 thread a device, but the plan has 3",
                            words=(*words, "--profile", self.profile(), "--verify", 0, "--set", "device.threads=3"))
        self.assert_refused(3, "cifar10", words=(*words, "--set", "data.name=cifar10", "--set", f"data.path={self.folder}"))

    def test_a_model_that_cannot_be_frozen_is_no_plan(self):
        gpt2 = self.configuration("gpt2", model={"name": "gpt2", "size": "nano", "image_size": 0}, data={"name": "toy"},
                                  freeze={"policy": "linear"}, train={"epochs": 4, "steps": 0})
        measured = self.folder / "gpt2.json"
        cli.must_run("profile", gpt2, "--out", measured, "--set", "freeze.policy=none")
        for command, words in (("tune", ("--out", self.out)), ("tune", ("--out", self.out, "--profile", measured, "--verify", 0)),
                               ("simulate", ("--profile", measured))):
            self.assert_refused(2, 'freeze.policy = "linear" cannot freeze gpt2', command=(command,), config=gpt2, words=words)

    def test_where_no_plan_runs_the_reason_has_its_own_exit_code(self):
        self.assert_refused(5, "none of the 1 best plans runs", words=("--out", self.out, "--profile", self.profile(), "--verify", 1,
                                                                        "--set", "train.step_timeout_s=0.001"))

    def test_auto_that_is_kept_stays_auto(self):
        kept = ("--keep", "pipeline.chunks", "--keep", "pipeline.partition")
        auto = self.configuration("auto", pipeline={"chunks": "auto", "partition": "auto"})
        cli.must_run("tune", auto, "--out", self.out, "--profile", self.profile(), "--verify", 0, *kept)
        tuned = self.tuned()["pipeline"]
        self.assertEqual((tuned["chunks"], tuned["partition"]), ("auto", "auto"))

    def test_a_batch_larger_than_the_data_and_a_limit_of_one_stage_are_warned_of(self):
        large = cli.must_run("tune", self.config, "--out", self.out, "--profile", self.profile(), "--verify", 1,
                             "--set", "train.global_batch=128", "--budget", 60)
        self.assertIn("there are 96 training samples, fewer than the global batch of 128", large.stderr)
        one = ("simulate", self.config, "--profile", self.profile(), "--set", "pipeline.stages=1", "--json")
        self.assertNotIn("does_not_fit", json.loads(cli.must_run(*one).stdout))
        limited = cli.must_run(*one, "--set", "device.memory_limit=1KiB")
        self.assertRegex(limited.stderr, r"the plan does not fit: device 0 needs .* of 1\.0 KiB")
        self.assertRegex(json.loads(limited.stdout)["does_not_fit"], r"device 0 needs")

    @long_tests.only("13 s")
    def test_runs_that_verify_write_no_weights(self):
        """They may be large, and TMPDIR may be in memory."""
        scratch = self.folder / "scratch"
        scratch.mkdir()
        seen = set()
        process = cli.start("tune", self.config, "--out", self.out, "--profile", self.profile(), "--verify", 2,
                            env=cli.environment_without_launchers() | {"TMPDIR": str(scratch)})
        while process.poll() is None:
            seen.update(name for _, _, names in os.walk(scratch) for name in names)
        self.assertEqual(cli.finish(process).returncode, 0)
        self.assertIn("metrics.jsonl", seen)
        self.assertFalse([name for name in seen if name.endswith(".safetensors")], seen)


if __name__ == "__main__":
    unittest.main()
