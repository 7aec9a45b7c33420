#!/usr/bin/env python3
"""`sluice profile --layers`: the operators that it names, beside PyTorch's own counter and profiler on the twins of layers.

    operators_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import json
import pathlib
import subprocess
import tempfile
import unittest

import torch
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

import long_tests
import sluice_cli as cli
import torch_models

IMAGE, BATCH = 16, 8
# Views and empty tensors are as the caller likes; the rest is what there is to do.
OF_NO_WORK = {"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::as_strided", "aten::view", "aten::t",
              "aten::transpose", "aten::expand", "aten::slice", "aten::detach", "aten::resolve_conj",
              "aten::resolve_neg", "aten::flatten", "aten::reshape", "aten::_unsafe_view", "aten::unsqueeze",
              "aten::result_type", "aten::to", "aten::lift_fresh"}


def flops_of(run):
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def flops_forward_and_back(module, x):
    forward = flops_of(lambda: module(x))
    return forward, flops_of(lambda: module(x).sum().backward()) - forward


class OperatorsTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def profile(self, model, precision="fp32", *arguments):
        config = cli.write_config(
            self.folder / "run.toml", device={"list": "cpu", "threads": 1},
            model={"name": model, "size": "nano", "image_size": IMAGE}, data={"name": "shapes", "samples": 64},
            train={"steps": 4, "global_batch": BATCH, "precision": precision}, profile={"steps": 1})
        done = cli.must_run("profile", config, "--layers", "--out", self.folder / "p.json", *arguments)
        return done, json.loads((self.folder / "p.json").read_text(encoding="utf-8"))["operators"]

    def layer(self, profile, name):
        (found,) = [layer for layer in profile["layers"] if layer["name"] == name]
        return found

    def assert_adds_up(self, profile):
        whole = {"seconds": 0, "operators_s": 0}
        for layer in profile["layers"]:
            for one in (layer["forward"], layer["backward"]):
                self.assertAlmostEqual(sum(row["self_s"] for row in one["operators"]), one["operators_s"], delta=1e-9)
                self.assertAlmostEqual(sum(row["share"] for row in one["operators"]), one["operators_s"] / one["watched_s"])
                self.assertLessEqual(one["operators_s"], one["watched_s"] * 1.0001, "self times lie within the layer's")
                selves = [row["self_s"] for row in one["operators"]]
                self.assertEqual(selves, sorted(selves, reverse=True))
                for part in whole:
                    whole[part] += one[part]
        print(f"operators: {whole['operators_s'] / whole['seconds']:.3f} of the layers' time")

    def assert_rates(self, profile):
        for row in (row for layer in profile["layers"] for one in ("forward", "backward") for row in layer[one]["operators"]):
            if row["self_s"] > 0:
                self.assertAlmostEqual(row["flops_per_s"] * row["self_s"], row["flops"], delta=1e-6 * row["flops"])
            self.assertAlmostEqual(row["of_peak_flops"] * profile["peak_flops_per_s"], row["flops_per_s"],
                                   delta=1e-6 * row["flops_per_s"])
            self.assertAlmostEqual(row["of_peak_bytes"] * profile["peak_bytes_per_s"], row["bytes_per_s"],
                                   delta=1e-6 * row["bytes_per_s"])
            shares = row["of_peak_flops"], row["of_peak_bytes"]
            expected = "neither" if max(shares) < 1 / 3 else "compute" if shares[0] >= shares[1] else "memory"
            self.assertEqual(row["bound"], expected)

    def test_resnet8_counts_what_pytorch_counts(self):
        done, profile = self.profile("resnet8")
        self.assert_adds_up(profile)
        self.assert_rates(profile)
        twin = torch_models.ResNet8().train()
        x, labels = torch.randn(BATCH, 3, IMAGE, IMAGE), torch.zeros(BATCH, dtype=torch.long)
        expected = flops_of(lambda: F.cross_entropy(twin(x), labels).backward())
        found = sum(row["flops"] for layer in profile["layers"] for one in ("forward", "backward")
                    for row in layer[one]["operators"])
        self.assertAlmostEqual(found, expected, delta=1e-6 * expected)
        block = self.layer(profile, "layer1.0")
        forward, backward = flops_forward_and_back(twin.layer1, torch.randn(BATCH, 16, IMAGE, IMAGE, requires_grad=True))
        self.assertAlmostEqual(sum(row["flops"] for row in block["forward"]["operators"]), forward, delta=1)
        self.assertAlmostEqual(sum(row["flops"] for row in block["backward"]["operators"]), backward, delta=1)
        # A batch-norm reads and writes the map once at least, in whichever kernel.
        norms = [row for row in block["forward"]["operators"] if "batch_norm" in row["name"]]
        self.assertGreaterEqual(sum(row["bytes"] for row in norms), 2 * 2 * 4 * BATCH * 16 * IMAGE * IMAGE)
        self.assertIn("layer1.0 forward", done.stdout)
        self.assertIn(norms[0]["name"], done.stdout)
        self.assertIn("measured peaks", done.stdout)

    def test_a_peak_that_has_room_in_the_cache_alone_is_said_to_be_the_caches(self):
        done, profile = self.profile("mlp", "fp32", "--set", 'device.memory_limit="16MiB"')
        level3 = subprocess.run(["getconf", "LEVEL3_CACHE_SIZE"], capture_output=True, text=True, check=False).stdout.strip()
        fits = int(level3 or 0) >= 4 << 20  # three tensors take a quarter of the limit
        self.assertEqual(profile["peak_of_cache"], fits)
        self.assertEqual("of the cache: no memory is free" in done.stdout, fits)

    @long_tests.only("15 s")
    def test_vit_counts_what_pytorch_counts(self):
        _, profile = self.profile("vit")
        self.assert_adds_up(profile)
        self.assert_rates(profile)
        width, heads, _, hidden = torch_models.ViT.SIZES["nano"]
        twin = torch_models.ViTLayer(width, heads, hidden)
        tokens = (IMAGE // 4) ** 2 + 1
        layers = [layer["name"] for layer in profile["layers"]]
        for part, run in (("attention", twin.attend), ("mlp", twin.feed_forward)):
            name = next(layer for layer in layers if layer.endswith(part))
            x = torch.randn(BATCH, tokens, width, requires_grad=True)
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
                expected = flops_forward_and_back(run, x)
            for direction, flops in zip(("forward", "backward"), expected):
                found = sum(row["flops"] for row in self.layer(profile, name)[direction]["operators"])
                self.assertAlmostEqual(found, flops, delta=1, msg=f"{name} {direction}")

    def names_in_pytorch(self, module, x):
        """Operators of a forward pass as PyTorch's profiler names them: all, and those that it sees nothing within."""
        module(x)
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            module(x)
        events = [event for event in seen.events() if event.name.startswith("aten::")]
        return {event.name for event in events}, {event.name for event in events if not event.cpu_children}

    @long_tests.only("30 s")
    def test_it_names_the_operators_that_pytorchs_profiler_names(self):
        """In float64 all of a layer is ATen's, in both."""
        self.maxDiff = None
        _, profile = self.profile("vit", "fp64")
        width, heads, _, hidden = torch_models.ViT.SIZES["nano"]
        twin = torch_models.ViTLayer(width, heads, hidden).double().train()
        x = torch.randn(BATCH, (IMAGE // 4) ** 2 + 1, width, dtype=torch.float64, requires_grad=True)
        name = next(layer["name"] for layer in profile["layers"] if layer["name"].endswith("mlp"))
        rows = self.layer(profile, name)["forward"]["operators"]
        everything, innermost = self.names_in_pytorch(twin.feed_forward, x)
        self.assertEqual(innermost - OF_NO_WORK - {row["name"] for row in rows}, set())
        working = {row["name"] for row in rows if row["flops"] or row["bytes"]}
        self.assertEqual(working - everything, set())
        self.assertLessEqual({"aten::addmm", "aten::native_layer_norm", "aten::gelu", "aten::add"}, working)

    @long_tests.only("one more model")
    def test_it_names_those_of_convolutions(self):
        _, profile = self.profile("resnet8", "fp64")
        twin = torch_models.ResNet8().double().train().to(memory_format=torch.channels_last)
        x = torch.randn(BATCH, 16, IMAGE, IMAGE, dtype=torch.float64, requires_grad=True).to(memory_format=torch.channels_last)
        block = self.layer(profile, "layer1.0")["forward"]["operators"]
        everything, innermost = self.names_in_pytorch(twin.layer1, x)
        # The twin counts its batches and adds in place; ours makes sure of not-finite values (nn/batch_norm.h).
        in_place = {"aten::add_", "aten::relu_", "aten::clamp_min_"}
        self.assertEqual(innermost - OF_NO_WORK - in_place - {row["name"] for row in block}, set())
        products = {row["name"] for row in block if row["flops"]}
        self.assertLessEqual(products | {"aten::native_batch_norm"}, everything & {row["name"] for row in block})
        self.assertTrue(products)

    @long_tests.only("15 s")
    def test_a_json_without_layers_has_no_operators(self):
        config = cli.write_config(
            self.folder / "run.toml", device={"list": "cpu", "threads": 1}, model={"name": "mlp", "image_size": 8},
            data={"name": "shapes", "samples": 64}, train={"steps": 4, "global_batch": 8}, profile={"steps": 1})
        if long_tests.RUN:  # in CI app_profile compares all fields
            done = cli.must_run("profile", config, "--json", "--out", self.folder / "p.json")
            self.assertNotIn("operators", json.loads(done.stdout))
        done = cli.must_run("profile", config, "--json", "--layers", "--out", self.folder / "p.json")
        self.assertEqual(json.loads(done.stdout), json.loads((self.folder / "p.json").read_text(encoding="utf-8")))
        self.assertEqual(len(json.loads(done.stdout)["operators"]["layers"]), 3)
        # Planning reads the file, whatever it has beside the costs.
        cli.must_run("train", config, "--dry-run")


if __name__ == "__main__":
    unittest.main(verbosity=2)
