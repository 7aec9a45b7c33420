#!/usr/bin/env python3
"""Exported models in parts, against PyTorch: outputs, gradients and buffers; and files that are refused.

    exported_models_test.py PROGRAM [unittest options]

PROGRAM is graph_run_program. SLUICE_LONG_TESTS=1: all models. Exit status 77: no torchvision or transformers.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

import long_tests
import pattern_models

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
try:
    import export_model
    import torch
    import torchvision
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError:
    sys.exit(77)
from check_exported import without_dropout
from torch import nn

BATCH, TOKENS = 3, 7
TEXT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 100}


def text_model(name, **more):
    kind = getattr(transformers, name)
    config = kind.config_class(**{**TEXT, **more})
    for key in ("hidden_dropout_prob", "attention_probs_dropout_prob", "resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout_rate"):
        if hasattr(config, key):
            setattr(config, key, 0.0)
    config.use_cache = False
    return without_dropout(kind._from_config(config, attn_implementation="sdpa"))


def vision_model(name, size):
    return without_dropout(torchvision.models.get_model(name, num_classes=10)), {"x": torch.randn(BATCH, 3, size, size)}


def tokens():
    return torch.randint(0, 100, (BATCH, TOKENS))


MODELS = {
    "resnet18": lambda: vision_model("resnet18", 64),
    "efficientnet": lambda: vision_model("efficientnet_b0", 64),
    "swin": lambda: vision_model("swin_t", 64),
    "densenet": lambda: vision_model("densenet121", 64),
    "bert": lambda: (text_model("BertForMaskedLM"), {"input_ids": tokens(), "attention_mask": pattern_models.padded(BATCH, TOKENS)}),
    "llama": lambda: (text_model("LlamaForCausalLM", num_key_value_heads=1), {"input_ids": tokens(), "attention_mask": pattern_models.padded(BATCH, TOKENS)}),
    "gpt2": lambda: (text_model("GPT2LMHeadModel", n_embd=32, n_layer=2, n_head=2), {"input_ids": tokens()}),
    "t5": lambda: (text_model("T5ForConditionalGeneration", d_model=32, d_ff=64, num_layers=2, num_heads=2, d_kv=16),
                   {"input_ids": tokens(), "decoder_input_ids": tokens()}),
    "unet": lambda: (pattern_models.UNet(), {"x": torch.randn(BATCH, 3, 16, 16)}),
    "shared": lambda: (pattern_models.TwoInputsShared(), {"ids": torch.randint(0, 20, (BATCH, TOKENS)), "scale": torch.randn(BATCH, TOKENS)}),
    "written": lambda: (pattern_models.Written(), {"x": torch.randn(BATCH, 6)}),
    "convolutions": lambda: (pattern_models.Convolutions(), {"x": torch.randn(BATCH, 3, 16, 16)}),
    "shared statistics": lambda: (pattern_models.SharedStatistics(), {"x": torch.randn(BATCH, 6)}),
    "norms first": lambda: (pattern_models.NormsFirst(), {"x": torch.randn(BATCH, 3, 16, 16)}),
    "texts": lambda: (pattern_models.Texts(), {"ids": torch.randint(0, 20, (BATCH, TOKENS))}),
    "orders": lambda: (pattern_models.Orders(), {"x": torch.randn(BATCH, 3, 8, 8)}),
    "sizes": lambda: (pattern_models.Sizes(), {"ids": torch.randint(0, 20, (BATCH, TOKENS))}),
    "regions": lambda: (pattern_models.Regions(), {"x": torch.randn(BATCH, 6)}),
    "mixed types": lambda: (pattern_models.MixedTypes(), {"x": torch.randn(BATCH, 6)}),
}


IN_FLOAT64 = ("resnet18", "t5", "bert", "llama", "unet", "shared", "written", "orders", "sizes", "regions", "shared statistics")
SOME = [name for name in MODELS if name not in (*IN_FLOAT64, "efficientnet", "swin", "densenet")]
# Elsewhere, LibTorch's products round by the addresses of their operands.
SAME_BITS = set(MODELS) - {"densenet", "unet", "written", "convolutions", "norms first", "shared statistics", "texts", "orders", "regions", "mixed types"}


# Where the models are cut.
CUTS = long_tests.some(("none", "blocks", "1"), ("none", "blocks", "1", "5"), "one more place to cut")

# Batch-norms over few values amplify the rounding of float32 by as much as this; float64 decides.
AMPLIFIED = {"densenet": 10, "shared statistics": 10}


class ExportedModels(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.file = self.folder / "m.pt2"

    def export(self, model, inputs):
        export_model.export_to(self.file, model, inputs)

    def run_program(self, cuts, *words):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.run([sys.argv[1], self.file, self.folder / "in.safetensors", self.folder / "out.safetensors", cuts, *words],
                              capture_output=True, text=True, env=environment)

    def must_run(self, cuts, *words):
        done = self.run_program(cuts, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return load_file(self.folder / "out.safetensors"), done.stdout.splitlines()[1:]

    def assert_equals_torch(self, name, dtype, all_cuts=CUTS):
        model, inputs = MODELS[name]()
        model = model.to(dtype).train()
        inputs = {key: value.to(dtype) if value.is_floating_point() else value for key, value in inputs.items()}
        self.export(model, inputs)
        output = export_model.first_output(model(**{key: value.clone() for key, value in inputs.items()}))
        gradient = torch.randn(output.shape, dtype=dtype)
        output.backward(gradient)
        save_file({**inputs, "gradient": gradient}, self.folder / "in.safetensors")
        wanted = {key: parameter.grad for key, parameter in model.named_parameters() if parameter.grad is not None}
        state = {key: value.clone() for key, value in model.state_dict().items()}
        words = ("fp64",) if dtype == torch.float64 else ()
        layers = {}
        for cuts in all_cuts:
            bound = 1e-10 if dtype == torch.float64 else 1e-4
            if cuts == "blocks" and dtype == torch.float32:
                bound = 5e-3  # layers of our own round in another way, and deep models amplify that
            if dtype == torch.float32:
                bound *= AMPLIFIED.get(name, 1)
            found, layers[cuts] = self.must_run(cuts, *words)
            if cuts == "blocks":
                self.assert_evaluates(model, inputs, found.pop("evaluation"), bound, name)
            torch.testing.assert_close(found.pop("output"), output.detach(), rtol=bound, atol=bound, msg=f"{name} {cuts}")
            self.assertEqual({key for key in found if key.startswith("grad/")}, {f"grad/{key}" for key in wanted}, (name, cuts))
            for key, error in export_model.relative_errors({key: found[f"grad/{key}"] for key in wanted}, wanted).items():
                if cuts == "none" and name in SAME_BITS:
                    self.assertTrue(torch.equal(found[f"grad/{key}"], wanted[key]), (name, key))
                self.assertLessEqual(error, bound, (name, cuts, key))
            for key, value in found.items():
                if key.startswith("state/"):
                    torch.testing.assert_close(value, state[key.removeprefix("state/")], rtol=bound, atol=bound, msg=f"{name} {key}")
        return layers

    def assert_evaluates(self, model, inputs, found, bound, name):
        model.eval()
        with torch.no_grad():
            torch.testing.assert_close(found, export_model.first_output(model(**inputs)), rtol=bound, atol=bound, msg=f"{name} evaluated")
        model.train()

    def test_random_numbers_belong_to_samples_and_are_gone_in_evaluation(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Dropout2d(0.5), nn.ReLU(inplace=True), nn.Dropout(0.3))
                self.depth = torchvision.ops.StochasticDepth(0.5, "row")
                self.attention = nn.MultiheadAttention(8, 2, dropout=0.4, batch_first=True)
                self.out = nn.Linear(8, 4)

            def forward(self, x):
                x = self.conv(x)
                x = x + self.depth(x * 2)
                x = x.flatten(2).transpose(1, 2)
                q = self.attention.in_proj_weight
                x = nn.functional.scaled_dot_product_attention(x, x @ q[:8], x, dropout_p=0.25 if self.training else 0.0)
                return self.out(self.attention(x, x, x)[0]).mean(1)

        model, inputs = Net(), {"x": torch.randn(8, 3, 5, 5)}
        self.export(model, inputs)
        save_file({**inputs, "gradient": torch.randn(8, 4)}, self.folder / "in.safetensors")
        whole, layers = self.must_run("blocks")
        self.assertGreater(len(layers), 1)
        model.eval()
        with torch.no_grad():
            self.assertGreater((whole["output"] - model(**inputs)).norm(), 0.1)
            torch.testing.assert_close(whole["evaluation"], model(**inputs), rtol=1e-5, atol=1e-6)
        for words in (("none",), ("1",), ("blocks", "halves")):
            found, _ = self.must_run(*words)
            for key in found:
                bound = 1e-5 * max(1, whole[key].abs().max().item())  # sums that cancel round as their terms do
                torch.testing.assert_close(found[key], whole[key], rtol=1e-4, atol=bound, msg=f"{words} {key}")
        dropped = (whole["output"] - self.must_run("blocks")[0]["output"]).norm()
        self.assertEqual(dropped, 0, "the same step gives the same numbers")

    def test_noise_is_drawn_from_its_distribution(self):
        class Noisy(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(3, 64), nn.Linear(64, 64)

            def forward(self, x):
                h = self.first(x)
                numbers = [torch.randn_like(h), torch.rand_like(h), torch.randn(x.size(0), 64), torch.rand(x.size(0), 64),
                           torch.empty_like(h).uniform_(-1, 3), torch.empty_like(h).normal_(2, 0.5),
                           torch.bernoulli(torch.full_like(h, 0.3)), torch.randint(4, (x.size(0), 64)), torch.randint(5, 9, (x.size(0), 64))]
                return torch.cat([self.last(h) * 0 + one for one in numbers], 1)

        self.export(Noisy(), {"x": torch.randn(400, 3)})
        save_file({"x": torch.randn(400, 3), "gradient": torch.randn(400, 9 * 64)}, self.folder / "in.safetensors")
        whole, _ = self.must_run("blocks")
        third, quarter = 1 / 12**0.5, (15 / 12)**0.5
        wanted = [(0, 1), (0.5, third), (0, 1), (0.5, third), (1, 4 * third), (2, 0.5), (0.3, 0.21**0.5), (1.5, quarter), (6.5, quarter)]
        for numbers, (mean, deviation) in zip(whole["output"].split(64, 1), wanted):
            self.assertAlmostEqual(numbers.mean().item(), mean, delta=0.1 * deviation)
            self.assertAlmostEqual(numbers.std().item(), deviation, delta=0.1 * deviation)
            self.assertEqual(len({tuple(row.tolist()) for row in numbers}), 400, "samples have numbers of their own")
        parts = whole["output"].split(64, 1)
        ranks = torch.arange(1, 400 * 64 + 1) / (400 * 64)
        for number, chance in {0: torch.special.ndtr, 1: lambda x: x, 2: torch.special.ndtr, 3: lambda x: x,
                               4: lambda x: (x + 1) / 4, 5: lambda x: torch.special.ndtr((x - 2) / 0.5)}.items():
            distance = (chance(parts[number].flatten().sort().values) - ranks).abs().max()  # Kolmogorov and Smirnov's
            self.assertLess(distance, 2 / (400 * 64)**0.5, number)
        self.assertLess(torch.corrcoef(torch.stack([part.flatten() for part in parts])).fill_diagonal_(0).abs().max(), 0.1)
        torch.testing.assert_close(whole["evaluation"], whole["output"])
        for words in (("none",), ("1",), ("blocks", "halves")):
            torch.testing.assert_close(self.must_run(*words)[0]["output"], whole["output"], msg=str(words))

    def test_models_equal_pytorch_cut_anywhere(self):
        models = long_tests.some(SOME, list(MODELS), "large models, and in float32 those that CI takes in float64")
        least = {"resnet18": 10, "efficientnet": 15, "swin": 20, "densenet": 10, "bert": 7, "llama": 6, "gpt2": 6, "t5": 8, "unet": 4}
        for name in models:
            with self.subTest(model=name):
                layers = self.assert_equals_torch(name, torch.float32)
                self.assertGreaterEqual(len(layers["blocks"]), least.get(name, 1), layers["blocks"])
                self.assertGreater(len(layers["1"]), len(layers["blocks"]))

    def test_models_equal_pytorch_in_float64(self):
        deep = long_tests.some([], ["densenet"], "a large model")
        for name in (*long_tests.some(IN_FLOAT64[2:], IN_FLOAT64, "10 s each"), *deep):
            with self.subTest(model=name):
                self.assert_equals_torch(name, torch.float64, long_tests.some(["blocks", "1"], CUTS, "uncut, CI has float32"))

    @long_tests.only("15 s")
    def test_layers_have_the_names_of_modules(self):
        layers = self.assert_equals_torch("resnet18", torch.float32, ["blocks"])["blocks"]
        self.assertEqual(layers[1:], [f"layer{i}.{j}" for i in (1, 2, 3, 4) for j in (0, 1)] + ["fc"])
        layers = self.assert_equals_torch("bert", torch.float32, ["blocks"])["blocks"]
        self.assertIn("bert.encoder.layer.1.attention", layers)

    def refused(self, *words):
        done = self.run_program("blocks")
        self.assertNotEqual(done.returncode, 0)
        [line] = done.stderr.splitlines()
        for word in words:
            self.assertIn(word, line)
        return done.returncode

    def test_what_is_not_supported_is_refused_with_the_line(self):
        class Sized(nn.Module):
            def forward(self, x):
                return x[x.sum(1) > 0]

        save_file({"gradient": torch.ones(1)}, self.folder / "in.safetensors")
        self.export(Sized(), {"x": torch.randn(BATCH, 4)})
        self.assertEqual(self.refused("size depends on the values", "exported_models_test.py", "line"), 2)
        self.export(text_model("MixtralForCausalLM", num_key_value_heads=1), {"input_ids": tokens()})
        self.assertEqual(self.refused("torch.ops.transformers.", "is not an operator of ATen"), 2)

    def test_damaged_files_are_refused(self):
        save_file({"gradient": torch.ones(1)}, self.folder / "in.safetensors")
        self.export(nn.Linear(4, 2), {"input": torch.randn(BATCH, 4)})
        whole = self.folder / "whole.pt2"
        shutil.copy(self.file, whole)
        content = whole.read_bytes()
        for size in (0, 10, len(content) // 2, len(content) - 100):
            self.file.write_bytes(content[:size])
            self.assertEqual(self.refused("m.pt2"), 7)
        self.file.write_bytes(b"not a zip" * 100)
        self.assertEqual(self.refused("m.pt2"), 7)

        def changed(record, change):
            with zipfile.ZipFile(whole) as source, zipfile.ZipFile(self.file, "w") as out:
                for info in source.infolist():
                    if info.filename.endswith("crc32.json"):
                        continue
                    data = source.read(info)
                    if info.filename.endswith(record):
                        data = change(data)
                        if data is None:
                            continue
                    out.writestr(info.filename, data)

        def json_change(record, edit):
            def change(data):
                value = json.loads(data)
                edit(value)
                return json.dumps(value).encode()
            changed(record, change)

        program, weights = "models/model.json", "weights/model_weights_config.json"
        changed(program, lambda data: data[:-5])
        self.refused("is not JSON")
        changed(program, lambda data: None)
        self.refused("is no file of torch.export")
        changed("weight_0", lambda data: None)
        self.refused("weight_0")
        changed("weight_0", lambda data: data[:-4])
        self.refused("sizes that fit the 28 bytes")
        node = lambda value: value["graph_module"]["graph"]["nodes"][0]  # noqa: E731
        json_change(program, lambda value: node(value).update(target="torch.ops.aten.nothing.default"))
        self.assertEqual(self.refused("aten::nothing", "is not an operator of this LibTorch"), 2)
        meta = lambda value: value["config"]["weight"]["tensor_meta"]  # noqa: E731
        for sizes in ([1 << 62, 1 << 62], [-1, 4], [1 << 40, 4]):
            json_change(weights, lambda value, sizes=sizes: meta(value).update(sizes=[{"as_int": size} for size in sizes]))
            self.assertEqual(self.refused("model_weights_config.json"), 7)
        json_change(weights, lambda value: value["config"]["weight"].update(use_pickle=True))
        self.refused("pickled")
        json_change(weights, lambda value: value["config"].pop("weight"))
        self.refused("has no tensor weight")


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main(argv=sys.argv[1:])
