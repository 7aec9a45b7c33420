#!/usr/bin/env python3
"""model.weights under the names of torchvision, transformers and timm, in files that these wrote. Exits 77 without them.

    public_weights_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import json
import pathlib
import shutil
import sys
import tempfile
import unittest

import torch

import long_tests
import sluice_cli as cli

try:
    import public_models
    import timm
    import torchvision
    import transformers
    from safetensors.torch import load_file, save_file
    from timm.layers import resample_abs_pos_embed
    from torchvision.models.vision_transformer import interpolate_embeddings
except ImportError as missing:
    print(f"skipped: {missing}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")
    sys.exit(77)

CLASSES, IMAGE, PATCH, LR = 10, 32, 8, 0.05
POSITIONS = "vit.embeddings.position_embeddings"


def torchvision_vit(classes=CLASSES):
    return torchvision.models.VisionTransformer(IMAGE, PATCH, 12, 3, 192, 768, num_classes=classes)


def timm_vit(classes=CLASSES, **constants):
    return timm.create_model("vit_tiny_patch16_224", img_size=IMAGE, patch_size=PATCH, num_classes=classes, **constants)


def transformers_vit(**constants):
    return transformers.ViTForImageClassification(transformers.ViTConfig(
        hidden_size=192, num_attention_heads=3, intermediate_size=768, image_size=IMAGE, patch_size=PATCH,
        num_labels=CLASSES, **constants))


def transformers_resnet(blocks, kind, widths):
    return transformers.ResNetForImageClassification(transformers.ResNetConfig(
        depths=blocks, layer_type=kind, hidden_sizes=widths, num_labels=CLASSES))


def transformers_convnext():
    return transformers.ConvNextForImageClassification(transformers.ConvNextConfig(num_labels=CLASSES))


def randomised(model):
    torch.manual_seed(7)
    model = public_models.leave_initial_values(model.train())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith((".gamma", "layer_scale_parameter")):
                parameter.copy_(0.2 + 0.3 * torch.rand_like(parameter))
            if name.endswith(("pos_embed", "pos_embedding", "cls_token", "class_token")):
                parameter.copy_(torch.randn_like(parameter))
    return model


def logits_of(model, images):
    found = model(images)
    return found if isinstance(found, torch.Tensor) else found.logits


class PublicWeightsTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        torch.manual_seed(3)
        self.batch = {"inputs": torch.randn(4, 3, IMAGE, IMAGE), "targets": torch.randint(0, CLASSES, (4,))}

    def configuration(self, model, **tables):
        keys = {"classes": CLASSES, "image_size": IMAGE, "patch_size": PATCH, **model}
        return cli.write_config(
            self.folder / "step.toml", device={"list": "cpu"}, model=keys,
            data={"name": "shapes", "samples": 20}, train={"precision": "fp64", "global_batch": 4, "optimizer": "sgd",
                                                           "lr": LR, "weight_decay": 0, "steps": 1}, **tables)

    def step(self, weights, **model):
        """The tensors of one step in float64, and what it said of the weights."""
        size, batch = model.get("image_size", IMAGE), self.batch
        if batch["inputs"].size(-1) != size:
            batch = {**batch, "inputs": torch.zeros(4, 3, size, size)}
        save_file(batch, self.folder / "batch.safetensors")
        done = cli.must_run("step", self.configuration(model), "--weights", weights,
                            "--batch", self.folder / "batch.safetensors", "--out", self.folder / "out.safetensors")
        said = [line for line in done.stderr.splitlines() if "weights of" in line]
        return load_file(self.folder / "out.safetensors"), said[0] if said else ""

    def refusal(self, weights, **model):
        done = cli.run("step", self.configuration(model), "--weights", weights, "--out", self.folder / "none.safetensors")
        self.assertEqual(done.returncode, 7, done.stderr)
        return cli.error_of(done)

    def save(self, tensors, name="model.safetensors"):
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, self.folder / name)
        return self.folder / name

    def assert_answers_alike(self, module, weights, source, **model):
        """Its logits; and every tensor of the file is in ours somewhere."""
        found, said = self.step(weights, **model)
        with torch.no_grad():
            expected = logits_of(module.double(), self.batch["inputs"].double())
        self.assertGreater(expected.std(0).min().item(), 1e-5)  # they depend on the samples
        error = ((found["logits"] - expected).norm() / expected.norm()).item()
        print(f"{source or 'our'} {model}: logits differ by {error:.1e}; {said.rpartition('safetensors: ')[2]}", flush=True)
        self.assertLessEqual(error, 1e-9)
        self.assertRegex(said, rf": \d+ tensors taken{f' under {source} names' if source else ''}(;|$)")
        self.assertNotIn("fresh", said)
        return said

    def test_vision_transformers_of_all_three(self):
        for module, source in ((torchvision_vit(), "torchvision's"), (timm_vit(), "timm's"),
                               (public_models.vit("tiny", CLASSES, IMAGE, PATCH), "Hugging Face's")):
            randomised(module)
            self.assert_answers_alike(module, self.save(module.state_dict()), source, name="vit", size="tiny")

    def test_convolutional_networks_under_other_names(self):
        cases = [
            (transformers_resnet([2, 2, 2, 2], "basic", [64, 128, 256, 512]), "Hugging Face's",
             {"name": "resnet18", "stem": "imagenet"}),
            (timm.create_model("convnext_tiny", num_classes=CLASSES), "timm's", {"name": "convnext"})]
        for module, source, keys in cases:
            randomised(module)
            self.assert_answers_alike(module, self.save(module.state_dict()), source, **keys)

    @long_tests.only("130 million parameters, and a ResNet-50")
    def test_large_ones(self):
        cases = [
            (transformers_convnext(), "Hugging Face's", {"name": "convnext"}),
            (timm.create_model("resnet50", num_classes=CLASSES), "", {"name": "resnet50", "stem": "imagenet"}),
            (transformers_resnet([3, 4, 6, 3], "bottleneck", [256, 512, 1024, 2048]), "Hugging Face's",
             {"name": "resnet50", "stem": "imagenet"}),
            (timm.create_model("vgg11_bn", num_classes=CLASSES), "timm's", {"name": "vgg11_bn"})]
        for module, source, keys in cases:
            randomised(module)
            if source == "timm's":
                self.batch["inputs"] = torch.randn(4, 3, 224, 224)  # its classifier reads 7x7 pixels, and pools none
                keys = {**keys, "image_size": 224}
            self.assert_answers_alike(module, self.save(module.state_dict()), source, **keys)

    @long_tests.only("5 s")
    def test_constants_of_config_json_beside_the_weights(self):
        whole = self.folder / "whole"
        for module in (transformers_vit(layer_norm_eps=3e-4), transformers_vit(hidden_act="gelu_new")):
            randomised(module).save_pretrained(whole)
            self.assert_answers_alike(module, whole, "", name="vit", size="tiny")
        timm_config = {"architecture": "vit_tiny_patch16_224", "model_args": {"act_layer": "gelu_tanh"},
                       "pretrained_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bilinear"}}
        (self.folder / "config.json").write_text(json.dumps(timm_config))
        module = randomised(timm_vit(act_layer="gelu_tanh"))
        self.assert_answers_alike(module, self.save(module.state_dict()), "timm's", name="vit", size="tiny")

    @long_tests.only("10 s")
    def test_a_run_keeps_the_constants_of_its_weights(self):
        """Trained, saved, resumed, evaluated, and loaded from a copy of the saved file alone."""
        module = randomised(timm_vit())
        (self.folder / "config.json").write_text(json.dumps(
            {"architecture": "vit_tiny_patch16_224", "pretrained_cfg": {"mean": [0.5] * 3, "std": [0.25] * 3}}))
        (self.folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.1] * 3, "image_std": [0.1] * 3}))
        weights = self.save(module.state_dict())
        run, model = self.folder / "run", {"name": "vit", "size": "tiny", "weights": str(weights)}
        config = self.configuration(model, checkpoint={"every_steps": 1})
        done = cli.must_run("train", config, "--run-dir", run)
        self.assertIn("preprocessor_config.json is ignored: its library is not the one whose tensor names the weights have", done.stderr)
        expected = {"norm_epsilon": 1e-6, "last_norm_epsilon": 1e-6, "gelu": "exact", "mean": [0.5] * 3, "stddev": [0.25] * 3}
        weights.unlink()
        cli.must_run("train", config, "--run-dir", run, "--resume", run, "--set", "train.steps=2")
        for checkpoint in cli.checkpoints(run).values():
            self.assertEqual(json.loads((checkpoint / "state.json").read_text())["constants"], expected)
        pixels = {}
        for name, words in (("checkpoint", ["--checkpoint", run]),
                            ("copy", ["--weights", shutil.copy(checkpoint / "model.safetensors", self.folder / "copy.safetensors")])):
            done = cli.must_run("eval", *([config] if name == "copy" else []), *words, "--logits", self.folder / "logits.safetensors")
            pixels[name] = load_file(self.folder / "logits.safetensors")["logits"]
        torch.testing.assert_close(pixels["copy"], pixels["checkpoint"], rtol=0, atol=0)
        self.assertIn("layer-norm epsilon 1e-06, GELU exact, pixels normalised by mean 0.5 0.5 0.5 and deviation", done.stderr)

    @long_tests.only("seven processes")
    def test_all_processes_take_the_constants_from_rank_0(self):
        """Also those that cannot read the weights: an epsilon of 0.5 changes the loss."""
        torch.manual_seed(7)
        whole = self.folder / "whole"
        transformers_vit(layer_norm_eps=0.5).save_pretrained(whole)

        def losses(name, size, **tables):
            train = {"precision": "fp64", "global_batch": 4, "optimizer": "sgd", "lr": LR, "steps": 3, **tables.pop("train", {})}
            config = cli.write_config(
                self.folder / f"{name}.toml", device={"list": "cpu", "threads": 1},
                model={"name": "vit", "size": "tiny", "classes": CLASSES, "image_size": IMAGE, "patch_size": PATCH},
                data={"name": "shapes", "samples": 20}, train=train, **tables)
            words = ("train", config, "--run-dir", self.folder / name)
            own = {0: ["--set", f"model.weights={whole}"]}
            for done in cli.finish_all(cli.start_ranks(size, *words, arguments_of=own)):
                self.assertEqual(done.returncode, 0, done.stderr)
            return torch.tensor(cli.column(self.folder / name, "loss"))

        plain = losses("plain", 1)
        torch.testing.assert_close(losses("ranks", 2), plain, rtol=1e-9, atol=0)
        served = losses("served", 3, replicas={"sync": "ps"}, ps={"policy": "bsp", "worker_batch": 2})
        torch.testing.assert_close(served, plain, rtol=1e-9, atol=0)
        (whole / "config.json").unlink()
        self.assertGreater((losses("other", 1) - plain).abs().max().item(), 1e-3)

    def test_a_language_model_without_its_prefix_and_with_old_masks(self):
        module = randomised(transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=256, n_positions=32, n_embd=32, n_layer=2, n_head=2))).eval()
        masks = {f"h.{i}.attn.bias": torch.ones(1, 1, 32, 32) for i in range(2)}
        weights = self.save({**module.transformer.state_dict(), **masks})
        tokens = torch.randint(0, 256, (4, 9))
        save_file({"inputs": tokens, "targets": tokens.clone()}, self.folder / "batch.safetensors")
        config = cli.write_config(
            self.folder / "gpt2.toml", device={"list": "cpu"}, model={"name": "gpt2", "size": "nano"}, data={"name": "toy"},
            train={"precision": "fp64", "global_batch": 4, "optimizer": "sgd", "lr": LR, "steps": 1})
        done = cli.must_run("step", config, "--weights", weights, "--batch", self.folder / "batch.safetensors",
                            "--out", self.folder / "out.safetensors")
        self.assertIn("28 tensors taken under Hugging Face's names; unused: h.0.attn.bias [1, 1, 32, 32], h.1", done.stderr)
        with torch.no_grad():
            torch.testing.assert_close(load_file(self.folder / "out.safetensors")["logits"], module.double()(tokens).logits,
                                       rtol=1e-9, atol=1e-9)

    @long_tests.only("4 s")
    def test_several_files_with_an_index(self):
        module = randomised(public_models.vit("tiny", CLASSES, IMAGE, PATCH))
        whole = self.folder / "whole"
        module.save_pretrained(whole, max_shard_size="5MB")
        self.assertGreater(len(list(whole.glob("model-*.safetensors"))), 3)
        self.assert_answers_alike(module, whole, "", name="vit", size="tiny")
        shards = sorted(whole.glob("model-*.safetensors"))
        index = json.loads((whole / "model.safetensors.index.json").read_text())["weight_map"]
        first = next(name for name, file in index.items() if file == shards[0].name)
        tensors = load_file(shards[1])
        save_file({**tensors, first: torch.ones(1)}, shards[1])
        self.assertIn(f'has tensor "{first}" twice', self.refusal(whole, name="vit"))
        save_file(tensors, shards[1])
        shards[2].write_bytes(shards[2].read_bytes()[:-100])
        self.assertIn("(truncated)", self.refusal(whole, name="vit"))
        shards[2].unlink()
        self.assertIn(f'names "{shards[2].name}", which is missing', self.refusal(whole, name="vit"))

    @long_tests.only("7 s")
    def test_position_embeddings_for_another_image_size_are_those_of_each_library(self):
        def of_torchvision(module, side):
            state = interpolate_embeddings(side * PATCH, PATCH, module.state_dict())
            return state["encoder.pos_embedding"]

        def of_timm(module, side):
            return resample_abs_pos_embed(module.pos_embed, [side, side], num_prefix_tokens=1)

        def of_transformers(module, side):
            tokens = torch.zeros(1, 1 + side * side, 192)
            return module.vit.embeddings.interpolate_pos_encoding(tokens, side * PATCH, side * PATCH)

        for module, source, interpolate in ((torchvision_vit(), " under torchvision's names", of_torchvision),
                                            (timm_vit(), " under timm's names", of_timm),
                                            (public_models.vit("tiny", CLASSES, IMAGE, PATCH), "", of_transformers)):
            family = "vit" if not source else "another"
            weights = self.save({public_models.name_in_files(family, name): tensor
                                 for name, tensor in randomised(module).state_dict().items()})
            for side in (6, 3):
                found, said = self.step(weights, name="vit", size="tiny", image_size=side * PATCH)
                self.assertIn(f"taken{source}; interpolated: {POSITIONS} from 4 x 4 to {side} x {side} patches", said)
                begun = found[f"param/{POSITIONS}"] + LR * found[f"grad/{POSITIONS}"]
                expected = interpolate(module, side).detach().double()
                print(f"{source or ' ours'}, 4 x 4 to {side} x {side}: {(begun - expected).abs().max().item():.1e}", flush=True)
                torch.testing.assert_close(begun, expected, rtol=0, atol=2e-6)

    def test_a_new_head_and_what_nothing_needs_are_said(self):
        weights = self.save(randomised(timm_vit(classes=5)).state_dict())
        _, said = self.step(weights, name="vit", size="tiny")
        self.assertIn("198 tensors taken under timm's names; fresh: classifier.weight, classifier.bias (the file has 5 "
                      "classes, the model 10); unused: classifier.bias [5], classifier.weight [5, 192]", said)
        body = public_models.vit("tiny", CLASSES, IMAGE, PATCH).vit.state_dict()
        _, said = self.step(self.save({**body, "pooler.dense.bias": torch.zeros(192)}), name="vit", size="tiny")
        self.assertIn("198 tensors taken under Hugging Face's names; fresh: classifier.weight, classifier.bias (not in the "
                      "file); unused: pooler.dense.bias [192]", said)
        old = {name: tensor for name, tensor in torchvision.models.resnet18(num_classes=CLASSES).state_dict().items()
               if not name.endswith("num_batches_tracked")}
        _, said = self.step(self.save(old), name="resnet18", stem="imagenet")
        self.assertIn("102 tensors taken; 20 counters of batches begin at 0 (not in the file)", said)

    @long_tests.only("4 s")
    def test_half_precision_and_evaluation(self):
        module = randomised(timm_vit())
        whole = self.save(module.state_dict(), "whole.safetensors")
        half = self.save({name: tensor.bfloat16() for name, tensor in module.state_dict().items()}, "half.safetensors")
        losses = []
        for weights in (whole, half):
            done = cli.must_run("eval", self.configuration({"name": "vit", "size": "tiny"}), "--weights", weights, "--json")
            losses.append(json.loads(done.stdout)["loss"])
        self.assertAlmostEqual(*losses, delta=0.2)
        body = self.save({name: tensor for name, tensor in module.state_dict().items() if "head" not in name})
        done = cli.run("eval", self.configuration({"name": "vit", "size": "tiny"}), "--weights", body)
        self.assertEqual(done.returncode, 7)
        self.assertIn("has no tensor 'classifier.", cli.error_of(done))

    def test_files_of_other_models_are_7_in_one_sentence(self):
        timms = randomised(timm_vit()).state_dict()
        weights = self.save(timms)
        self.assertIn("or any other of resnet18, nor any under Hugging Face's names; its first is 'blocks.0.attn.proj.bias', "
                      "so it is the file of another model", self.refusal(weights, name="resnet18", stem="imagenet"))
        self.assertIn("tensor 'vit.", self.refusal(weights, name="vit", size="small"))
        self.assertIn("tensor 'vit.embeddings.patch_embeddings.projection.weight' is [192, 3, 8, 8]",
                      self.refusal(weights, name="vit", size="tiny", patch_size=4))
        timms["blocks.3.attn.qkv.weight"] = torch.zeros(575, 192)
        self.assertIn("'blocks.3.attn.qkv.weight' is [575, 192], which cannot be split into 3 tensors: 'vit.encoder.layer.3.attention",
                      self.refusal(self.save(timms), name="vit", size="tiny"))
        for error in (self.refusal(self.folder, name="convnext"), self.refusal(self.folder / "step.toml", name="vit")):
            self.assertEqual(len(error.splitlines()), 1)

    @long_tests.only("each start takes a second")
    def test_files_of_models_a_little_different_are_7_too(self):
        timms = randomised(timm_vit()).state_dict()
        timms["blocks.3.attn.qkv.weight"] = torch.zeros(576, 191)
        self.assertIn("tensor 'vit.encoder.layer.3.attention.attention.", self.refusal(self.save(timms), name="vit", size="tiny"))
        del timms["blocks.3.attn.qkv.weight"]
        self.assertIn("has no tensor 'vit.encoder.layer.3.attention.attention.",
                      self.refusal(self.save(timms), name="vit", size="tiny"))
        registers = {**randomised(timm_vit()).state_dict(), "reg_token": torch.zeros(1, 4, 192)}
        self.assertIn("'reg_token'", self.refusal(self.save(registers), name="vit", size="tiny"))
        twice = {**randomised(timm_vit()).state_dict(), "vit.layernorm.weight": torch.ones(192)}
        self.assertIn("has 'vit.layernorm.weight' twice", self.refusal(self.save(twice), name="vit", size="tiny"))


if __name__ == "__main__":
    unittest.main()
