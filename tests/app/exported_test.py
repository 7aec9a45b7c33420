#!/usr/bin/env python3
"""model.name = "pt2": exported models of a user beside PyTorch.

    exported_test.py [unittest options]        SLUICE_BINARY names the binary; exits 77 without torch
"""

import sys
import unittest

import long_tests
import sluice_cli as cli

try:
    import torch
    from exported_case import SEED, Exported
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")
    sys.exit(77)
from torch import nn

torch.set_num_threads(1)


class Pair(nn.Module):
    """Two inputs and its own loss, the mean over labels from 0 on, whose number is the second output."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(12, 16), nn.Linear(5, 16)
        self.body = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.unused, self.out = nn.Linear(2, 2), nn.Linear(16, 3)

    def forward(self, left, right, labels):
        hidden = torch.tanh(self.left(left)) + self.right(right)
        for layer in self.body:
            hidden = hidden + torch.relu(layer(hidden))
        loss = nn.functional.cross_entropy(self.out(hidden), labels, ignore_index=-1)
        return loss, (labels >= 0).sum()


class Tied(nn.Module):
    """A language model whose head is its table of tokens."""

    def __init__(self):
        super().__init__()
        self.table, self.body = nn.Embedding(31, 16), nn.Linear(16, 16)
        self.head = nn.Linear(16, 31, bias=False)
        self.head.weight = self.table.weight

    def forward(self, input_ids):
        return self.head(torch.tanh(self.body(self.table(input_ids))))


class Buffers(nn.Module):
    """One buffer is used in two layers; if it writes, another one is written in training and used first in evaluation."""

    def __init__(self, writes):
        super().__init__()
        self.writes = writes
        self.register_buffer("scale", torch.ones(4))
        self.register_buffer("seen", torch.ones(4))
        self.body = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
        self.out, self.late, self.detached = nn.Linear(4, 3), nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))

    def forward(self, x):
        x = x * self.scale if self.training or not self.writes else x / self.seen
        for layer in self.body:
            x = torch.tanh(layer(x))
        x = x * self.scale + self.detached.detach()
        if self.training and self.writes:
            self.seen.copy_(x.detach().abs().mean(0))
        return self.out(x if self.training else x * self.late)


class Streams(nn.Module):
    """Evaluation computes the two streams in another order."""

    def __init__(self):
        super().__init__()
        self.left, self.right = (nn.ModuleList(nn.Linear(4, 4) for _ in range(3)) for _ in range(2))
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        p = q = x
        for left, right in zip(self.left, self.right):
            if self.training:
                p = torch.tanh(left(p))
                q = torch.sigmoid(right(q))
            else:
                q = torch.sigmoid(right(q))
                p = torch.tanh(left(p))
        return self.out(p - 2 * q)


class Marked(nn.Module):
    """The first label of each sample is not counted, and labels count from 1."""

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(5, 4), nn.Linear(4, 3)

    def forward(self, ids, labels):
        valid = labels >= 1
        valid[:, 0] = False
        labels.sub_(1)
        loss = nn.functional.cross_entropy(self.out(self.table(ids)).transpose(1, 2), labels.clamp(min=0), reduction="none")
        return (loss * valid).sum() / valid.sum(), (valid.float() @ torch.tensor([1.0, 1.0, 1.0, 1.0])).sum()


class Weighted(nn.Module):
    """The count of targets is a sum of weights."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x, weight):
        loss = self.body(x).squeeze(1).pow(2)
        return (loss * weight).sum() / weight.sum(), weight.sum()


def pair_samples(count):
    labels = torch.randint(-1, 3, (count,))
    labels[0] = 0
    return {"left": torch.randn(count, 12), "right": torch.randn(count, 5), "labels": labels}


class OwnModels(Exported):
    def write_samples(self, count=40):
        folder = self.folder / "data"
        folder.mkdir(exist_ok=True)
        for split, n in (("train", count), ("test", 10)):
            save_file(pair_samples(n), folder / f"{split}.safetensors")
        return {"name": "tensors", "path": str(folder)}

    def step(self, file, batch, *words, **tables):
        save_file(batch, self.folder / "batch.safetensors")
        out = self.folder / "out.safetensors"
        cli.must_run("step", self.config(file, **tables), "--batch", self.folder / "batch.safetensors", "--out", out, *words)
        return load_file(out)

    def test_a_loss_with_uneven_counts_equals_pytorch(self):
        module = Pair().double()
        batch = pair_samples(7)
        batch["labels"][:3] = -1  # the first micro-batch has fewer targets
        file = self.export(module, {name: value.double() if value.is_floating_point() else value
                                    for name, value in pair_samples(4).items()})
        loss, _ = module(batch["left"].double(), batch["right"].double(), batch["labels"])
        loss.backward()
        for pipeline in ({}, {"stages": 3, "chunks": 3, "schedule": "zb-h1"}):
            out = self.step(file, batch, pipeline=pipeline)
            torch.testing.assert_close(out["loss"], loss.detach(), rtol=1e-12, atol=0)
            for name, parameter in module.named_parameters():
                if parameter.grad is not None:
                    torch.testing.assert_close(out[f"grad/{name}"], parameter.grad, rtol=1e-10, atol=1e-14)

    def test_targets_of_a_loss_have_no_gradient(self):
        class Signs(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(4)))

            def forward(self, x, signs):
                return nn.functional.soft_margin_loss(self.body(x), signs)

        module = Signs().double()
        batch = {"x": torch.randn(6, 4, dtype=torch.float64), "signs": torch.randint(0, 2, (6, 4)).double() * 2 - 1}
        file = self.export(module, {name: value[:3].clone() for name, value in batch.items()})
        module(**batch).backward()
        for pipeline in ({"stages": 3, "chunks": 3, "schedule": "zb-h1"}, {"stages": 2, "chunks": 2, "recompute": "layer"}):
            out = self.step(file, batch, pipeline=pipeline)
            for name, parameter in module.named_parameters():
                torch.testing.assert_close(out[f"grad/{name}"], parameter.grad, rtol=1e-10, atol=1e-14)

    def test_counts_see_writes_through_views(self):
        module = Marked()
        batch = {"ids": torch.randint(0, 5, (6, 4)), "labels": torch.randint(0, 4, (6, 4))}
        batch["labels"][0, :2], batch["labels"][:, 2] = 0, 3
        file = self.export(module, {name: value[:3].clone() for name, value in batch.items()})
        loss, _ = module.double()(batch["ids"], batch["labels"].clone())
        out = self.step(file, batch, pipeline={"chunks": 3})
        torch.testing.assert_close(out["loss"], loss.detach(), rtol=1e-12, atol=0)

    def test_buffers_keep_their_values_in_all_layers(self):
        module = Buffers(writes=True).double()
        file = self.export(module, {"x": torch.randn(3, 4, dtype=torch.float64)})
        batch = {"x": torch.randn(6, 4, dtype=torch.float64), "targets": torch.randint(0, 3, (6,))}
        out = self.step(file, batch, train={"weight_decay": 0.5})
        nn.functional.cross_entropy(module(batch["x"]), batch["targets"]).backward()
        torch.testing.assert_close(out["buffer/seen"], module.seen, rtol=1e-12, atol=0)
        self.assertEqual({name for name in out if name.startswith("grad/")},
                         {f"grad/{name}" for name, parameter in module.named_parameters() if parameter.grad is not None})
        for name in ("late", "detached"):  # without a gradient there is no decay
            self.assertTrue(torch.equal(out[f"param/{name}"], getattr(module, name).detach()), name)
        file = self.export(Buffers(writes=False).double(), {"x": torch.randn(3, 4, dtype=torch.float64)})
        save_file(module.state_dict() | {"scale": torch.full((4,), 3.0)}, self.folder / "other.safetensors")
        done = cli.run("step", self.config(file), "--weights", self.folder / "other.safetensors", "--batch",
                       self.folder / "batch.safetensors", "--out", self.folder / "o.safetensors")
        self.assertEqual((done.returncode, "'scale' has other values" in cli.error_of(done)), (7, True), done.stderr)

    def test_frozen_layers_pass_on_what_the_others_take(self):
        file = self.export(Streams().double(), {"x": torch.randn(3, 4, dtype=torch.float64)})
        folder = self.folder / "streams"
        folder.mkdir()
        for split in ("train", "test"):
            save_file({"x": torch.randn(8, 4), "targets": torch.randint(0, 3, (8,))}, folder / f"{split}.safetensors")
        run = self.train(file, data={"name": "tensors", "path": str(folder)}, train={"steps": 4, "lr": 1e-30},
                         freeze={"policy": "schedule", "schedule": ["1: 1"], "elastic": False})
        losses = self.losses(run)
        torch.testing.assert_close(losses, losses[:1].expand(4), rtol=1e-5, atol=0)

    def test_counts_of_targets_are_whole_numbers(self):
        batch = {"x": torch.randn(6, 4, dtype=torch.float64), "weight": torch.tensor([2, 0, 1, 1, 5, 0])}
        module = Weighted().double()
        file = self.export(module, {"x": batch["x"][:3], "weight": batch["weight"][:3] > 0})
        loss, _ = module(batch["x"], batch["weight"] > 0)
        out = self.step(file, batch, pipeline={"chunks": 2})
        torch.testing.assert_close(out["loss"], loss.detach(), rtol=1e-12, atol=0)
        file = self.export(module, {"x": batch["x"][:3], "weight": torch.rand(3, dtype=torch.float64)})
        save_file(batch | {"weight": torch.rand(6, dtype=torch.float64)}, self.folder / "batch.safetensors")
        done = cli.run("step", self.config(file), "--batch", self.folder / "batch.safetensors", "--out", self.folder / "o.safetensors")
        self.assertEqual((done.returncode, "whole number" in cli.error_of(done)), (3, True), done.stderr)

    def test_modes_that_would_be_wrong_are_refused(self):
        class Twice(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm, self.out = nn.BatchNorm1d(4), nn.Linear(4, 3)
                self.register_buffer("mean", torch.zeros(4))

            def forward(self, x):
                self.mean.mul_(0.5).add_(x.detach().mean(0))
                return self.out(torch.tanh(self.norm(self.norm(x))) + self.mean)

        file = self.export(Twice(), {"x": torch.randn(3, 4)})
        save_file({"x": torch.randn(6, 4), "targets": torch.randint(0, 3, (6,))}, self.folder / "batch.safetensors")
        for key, pipeline in (("batch_norm", {"batch_norm": "sync"}), ("recompute", {"recompute": "layer"})):
            done = cli.run("step", self.config(file, pipeline=pipeline), "--batch", self.folder / "batch.safetensors", "--out",
                           self.folder / "o.safetensors")
            self.assertEqual((done.returncode, f"pipeline.{key}" in cli.error_of(done)), (2, True), done.stderr)

    def test_bfloat16_computes_as_autocast_does(self):
        module, batch = Pair(), pair_samples(64)
        file = self.export(module, pair_samples(4))
        with torch.autocast("cpu", torch.bfloat16):
            loss, _ = module(**batch)
        loss.backward()
        out = self.step(file, batch, train={"precision": "bf16"})
        torch.testing.assert_close(out["loss"].float(), loss.detach(), rtol=1e-2, atol=0)
        exact = self.step(file, batch, train={"precision": "fp32"})
        self.assertNotEqual(out["loss"].item(), exact["loss"].item())
        for name, parameter in module.named_parameters():
            if parameter.grad is not None:
                error = (out[f"grad/{name}"] - parameter.grad).norm() / parameter.grad.norm()
                self.assertLess(error, 0.03, name)

    @long_tests.only("the test before has bfloat16 in CI")
    def test_bfloat16_leaves_out_what_autocast_leaves_out(self):
        class Exact(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(4, 3), nn.Linear(3, 3)

            def forward(self, x):
                with torch.autocast("cpu", enabled=False):
                    x = self.first(x)
                return self.last(x) * 0 + x

        module = Exact()
        file = self.export(module, {"x": torch.randn(3, 4)})
        batch = {"x": torch.randn(6, 4), "targets": torch.randint(0, 3, (6,))}
        losses = [self.step(file, batch, train={"precision": precision})["loss"].item() for precision in ("bf16", "fp32")]
        self.assertAlmostEqual(*losses, delta=1e-6)

    def test_dropout_does_not_depend_on_the_plan(self):
        module = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.4), nn.ReLU(), nn.Linear(16, 16), nn.Dropout(0.2), nn.Linear(16, 3))
        file = self.export(module, {"input": torch.randn(3, 4)})
        batch = {"input": torch.randn(8, 4), "targets": torch.randint(0, 3, (8,))}
        first = self.step(file, batch)
        for plan in ({"pipeline": {"stages": 2, "chunks": 4}}, {"replicas": {"local": 2}}, {"pipeline": {"recompute": "layer"}}):
            for name, tensor in self.step(file, batch, **plan).items():
                torch.testing.assert_close(tensor, first[name], rtol=1e-9, atol=1e-12, msg=lambda text, of=name, by=plan: f"{of} {by}: {text}")
        other = self.step(file, batch, train={"seed": SEED + 1})
        self.assertNotEqual(other["loss"].item(), first["loss"].item())

    def test_checkpoints_load_strictly_into_the_module(self):
        module = Pair()
        file = self.export(module, pair_samples(4))
        run = self.train(file, data=self.write_samples(), train={"precision": "fp32"}, pipeline={"stages": 2, "chunks": 2})
        self.assertTrue(torch.equal(self.weights_of(run)["unused.weight"], module.unused.weight))
        module.load_state_dict(self.weights_of(run), strict=True)
        batch = pair_samples(6)
        out = self.step(file, batch, "--weights", run, train={"precision": "fp32"})
        torch.testing.assert_close(out["loss"].float(), module(**batch)[0].detach(), rtol=1e-5, atol=0)

    def test_tied_weights_have_all_their_names(self):
        file = self.export(Tied(), {"input_ids": torch.randint(0, 31, (3, 6))})
        folder = self.folder / "text"
        folder.mkdir()
        for split in ("train", "test"):
            ids = torch.randint(0, 31, (24, 9))
            save_file({"input_ids": ids[:, :-1].contiguous(), "targets": ids[:, 1:].contiguous()}, folder / f"{split}.safetensors")
        run = self.train(file, data={"name": "tensors", "path": str(folder)}, train={"ema_decay": 0.5},
                         pipeline={"stages": 2, "chunks": 2})
        for name in ("model", "ema"):
            weights = load_file(max(cli.checkpoints(run).items())[1] / f"{name}.safetensors")
            Tied().load_state_dict(weights, strict=True)
            self.assertTrue(torch.equal(weights["head.weight"], weights["table.weight"]))
        cli.must_run("eval", "--checkpoint", run, "--ema")
        later = self.train(file, "--resume", run, data={"name": "tensors", "path": str(folder)}, train={"ema_decay": 0.5, "steps": 10})
        self.assertEqual(cli.column(later, "step"), [9, 10])

    def test_batches_go_by_the_names_of_forward(self):
        module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
        file = self.export(module, {"input": torch.randn(3, 4, dtype=torch.float64)})
        x, targets = torch.randn(6, 4, dtype=torch.float64), torch.randint(0, 3, (6,))
        loss = nn.functional.cross_entropy(module(x), targets)
        for name in ("input", "inputs"):
            torch.testing.assert_close(self.step(file, {name: x, "targets": targets})["loss"], loss.detach(), rtol=1e-12, atol=0)
        save_file({"left": x, "targets": targets}, self.folder / "bad.safetensors")
        done = cli.run("step", self.config(file), "--batch", self.folder / "bad.safetensors", "--out", self.folder / "o.safetensors")
        self.assertEqual((done.returncode, "'input'" in cli.error_of(done)), (3, True), done.stderr)

    def test_a_run_does_not_go_on_with_another_file(self):
        file, data = self.export(Pair(), pair_samples(4)), self.write_samples()
        run = self.train(file, data=data)
        torch.manual_seed(SEED + 1)
        self.export(Pair(), pair_samples(4))  # replaces the file
        done = cli.run("train", self.config(file, data=data, train={"steps": 10}), "--resume", run)
        self.assertEqual((done.returncode, "another content of model.file" in cli.error_of(done)), (7, True), done.stderr)

    def refused(self, file, code, *words, **tables):
        done = cli.run("train", self.config(file, **tables), "--run-dir", self.folder / "refused")
        self.assertEqual(done.returncode, code, done.stderr)
        for word in words:
            self.assertIn(word, cli.error_of(done))

    def test_what_does_not_fit_is_refused(self):
        file = self.export(Pair(), pair_samples(4))
        data = self.write_samples()
        self.refused(self.folder / "none.pt2", 2, "none.pt2", "scripts/export_model.py", data=data)
        self.refused(file, 2, "takes tensors", "shapes", data={"name": "shapes"})
        self.refused(file, 2, "model.lora_rank", data=data, model={"lora_rank": 4})
        self.refused(file, 2, "model.file", data=data, model={"name": "resnet8"})
        save_file({"left": torch.randn(6, 12), "labels": torch.zeros(6, dtype=torch.long)}, self.folder / "data" / "train.safetensors")
        self.refused(file, 2, "left, right, labels", data=data)
        save_file({"left": torch.randn(6, 12), "right": torch.randn(5, 5)}, self.folder / "data" / "train.safetensors")
        self.refused(file, 3, "'right' has 5 entries", data=data)
        ids = {"input_ids": torch.full((6, 4), 31), "targets": torch.zeros(6, 4, dtype=torch.long)}
        of_ids = self.export(Tied(), {"input_ids": torch.zeros(3, 4, dtype=torch.long)}, "ids.pt2")
        save_file(ids, self.folder / "data" / "train.safetensors")
        self.refused(of_ids, 2, "'input_ids'", "numbers from 0 to 30, and it holds 31", data=data)
        self.refused(file, 2, "model.context = 9", data=data, model={"context": 9})
        done = cli.run("step", self.config(of_ids, data=data), "--batch", self.folder / "data" / "train.safetensors", "--out",
                       self.folder / "o.safetensors")
        self.assertEqual((done.returncode, "numbers from 0 to 30, and it holds 31" in cli.error_of(done)), (3, True), done.stderr)
        (self.folder / "broken.pt2").write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        self.refused(self.folder / "broken.pt2", 7, "broken.pt2", data=data)


if __name__ == "__main__":
    unittest.main()
