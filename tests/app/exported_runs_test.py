#!/usr/bin/env python3
"""model.name = "pt2": whole runs of an exported model beside the built-in one.

    exported_runs_test.py [unittest options]        SLUICE_BINARY names the binary; exits 77 without torchvision
"""

import sys
import unittest

import long_tests
import sluice_cli as cli

try:
    import torch
    import torchvision
    from exported_case import Exported
    from safetensors.torch import save_file
except ImportError as missing:
    print(f"skipped: {missing}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")
    sys.exit(77)

torch.set_num_threads(1)


class WholeRuns(Exported):
    """A ResNet-18, exported and built in, on the same data from the same weights."""

    DATA, STEPS = {"name": "shapes", "samples": 64}, 50 if long_tests.RUN else 8

    def setUp(self):
        super().setUp()
        module = torchvision.models.resnet18(num_classes=10).double()
        self.file = self.export(module, {"x": torch.randn(3, 3, 32, 32, dtype=torch.float64)})
        save_file(module.state_dict(), self.folder / "start.safetensors")
        self.own = {"name": "resnet18", "stem": "imagenet", "weights": str(self.folder / "start.safetensors"), "file": ""}

    def both(self, **tables):
        """The same run of both models."""
        tables = {"data": self.DATA, "train": {"steps": self.STEPS}} | tables
        return self.train(self.file, **tables), self.train(self.file, **(tables | {"model": self.own}))

    def assert_equal(self, **tables):
        exported, built_in = self.both(**tables)
        self.assert_same_losses(exported, built_in)
        self.assert_same_weights(exported, built_in, 1e-9)
        return exported

    @long_tests.only("CI has pipelines")
    def test_one_device_equals_the_built_in_model(self):
        self.assert_equal()

    def test_pipelines_with_deferred_norms_equal_the_built_in_model(self):
        # Deferred weight gradients run in queues of nn::linear() and nn::conv2d().
        self.assert_equal(pipeline={"stages": 2, "chunks": 2, "schedule": "zb-h1", "batch_norm": "deferred",
                                    "partition": [5, 5]})

    @long_tests.only("CI has pipelines")
    def test_replicas_with_synchronised_norms_equal_the_built_in_model(self):
        self.assert_equal(replicas={"local": 2}, pipeline={"batch_norm": "sync"}, train={"global_batch": 9, "steps": self.STEPS})

    @long_tests.only("a step equals PyTorch's in graph_training_equals_torch in CI")
    def test_freezing_equals_the_built_in_model(self):
        tables = {"freeze": {"policy": "schedule", "schedule": ["1: 3"], "elastic": False}}
        run = self.assert_equal(**tables, train={"steps": max(16, self.STEPS)})
        self.assertGreater(cli.column(run, "frozen_layers")[-1], 0)

    @long_tests.only("one more shape of a pipeline")
    def test_an_elastic_pipeline_equals_the_built_in_model(self):
        # Where the pipeline shrinks depends on measured times, the losses do not.
        self.assert_equal(freeze={"policy": "schedule", "schedule": ["1: 4"], "elastic": True}, train={"steps": max(16, self.STEPS)},
                          pipeline={"stages": 2, "chunks": 2, "batch_norm": "deferred", "partition": [5, 5]})

    @long_tests.only("half a minute")
    def test_a_parameter_server_equals_the_built_in_model(self):
        self.assert_equal(replicas={"sync": "ps"}, ps={"clock": "virtual", "workers": 2, "worker_batch": 4})

    @long_tests.only("the better part of a minute")
    def test_resuming_on_another_topology_goes_on(self):
        halves = {"chunks": 2, "batch_norm": "deferred"}
        firsts = self.both(pipeline=halves, train={"steps": 4})
        later = self.train(self.file, "--resume", firsts[0], data=self.DATA, train={"steps": self.STEPS},
                           pipeline={"stages": 2, "schedule": "gpipe", **halves})
        built_in = self.train(self.file, "--resume", firsts[1], data=self.DATA, train={"steps": self.STEPS},
                              pipeline={"stages": 2, "schedule": "gpipe", **halves}, model=self.own)
        self.assert_same_losses(later, built_in)
        self.assert_same_weights(later, built_in, 1e-9)
        whole = self.train(self.file, data=self.DATA, pipeline=halves)  # rounds in another way, which later steps amplify
        torch.testing.assert_close(self.losses(later)[:4], self.losses(whole)[4:], rtol=1e-10, atol=0)


if __name__ == "__main__":
    unittest.main()
