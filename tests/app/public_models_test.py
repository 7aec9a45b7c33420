"""`sluice step` beside torchvision's and transformers' own models: loss, logits, every gradient, running statistics.

    public_models_test.py MODEL SIZE STEM fp64|fp32        SLUICE_BINARY names the binary; exits 77 without these packages

The model is made there with random weights and saved as they save it; `sluice step` reads that file, cuts the model into
one to three stages, and its answers are compared with the model's in float64. What one training step of Sluice saves loads
there again, strictly. CI takes one of the cuts.

In float32 the gradient of a ReLU network is not a matter of 1e-4: rounding decides on which side of the edge the values next
to it fall, and PyTorch's own gradients of a ResNet-50 are 1e-2 away from those in float64. So batch-norms have a bias there
that keeps their values off the edge (float64 shows both sides), and where PyTorch's own float32 is still further away than
the bound, three times its distance is allowed.
"""

import copy
import pathlib
import sys
import tempfile

import torch
from torch.nn import functional as F

import long_tests
import sluice_cli

try:
    import public_models
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")
    sys.exit(77)

CLASSES, SAMPLES, CHUNKS, PATCH = 10, 8, 2, 8
IMAGES = {"imagenet": 64, "cifar": 32}
# Relative to max(|t*|, 1e-3 |all of its kind|), norms; the model's own numbers are in float64.
TOLERANCE = {"fp64": {"logits": 1e-9, "loss": 1e-9, "grad": 1e-9, "buffer": 1e-9},
             "fp32": {"logits": 1e-5, "loss": 1e-4, "grad": 1e-4, "buffer": 1e-5}}
CUTS = [(stages, schedule) for stages in (1, 2, 3) for schedule in ("1f1b", "zb-h1")]
CI_CUTS = {"fp32": [(2, "1f1b")], "fp64": [(3, "zb-h1")]}
OFF_THE_EDGE = 5.0  # deviations of what a batch-norm gives


class Case:
    def __init__(self, folder, name, size, stem, precision):
        self.folder, self.name, self.precision = folder, name, precision
        self.image = 48 if name == "vit" else IMAGES[stem]
        self.model = public_models.make(name, size, stem, classes=CLASSES, image=self.image, patch=PATCH).train()
        public_models.leave_initial_values(self.model)
        if precision == "fp32":
            for module in self.model.modules():
                if isinstance(module, torch.nn.BatchNorm2d):
                    module.bias.data.add_(OFF_THE_EDGE)
        keys = {"name": name, "size": size, "stem": stem, "classes": CLASSES, "image_size": self.image, "patch_size": PATCH}
        self.keys = {key: value for key, value in keys.items() if key != "stem" or name in public_models.RESNETS}
        self.batch = {"inputs": torch.randn(SAMPLES, 3, self.image, self.image),
                      "targets": torch.randint(0, CLASSES, (SAMPLES,))}
        save_file(self.batch, folder / "batch.safetensors")
        if name == "vit":
            self.model.save_pretrained(folder / "public")
        else:
            (folder / "public").mkdir()
            save_file(self.model.state_dict(), folder / "public" / "model.safetensors")

    def configuration(self, **tables):
        return sluice_cli.write_config(
            self.folder / "step.toml", device={"list": "cpu"}, model=self.keys,
            data={"name": "shapes", "samples": 64},
            train={"precision": self.precision, "global_batch": SAMPLES, "optimizer": "sgd", "lr": 0.05, "steps": 1,
                   "weight_decay": 0}, **tables)

    def theirs(self, dtype=torch.float64):
        """One backward pass, micro-batch by micro-batch; `sluice step --out` has the same names."""
        model = copy.deepcopy(self.model).to(dtype)
        count = CHUNKS if any(isinstance(module, torch.nn.BatchNorm2d) for module in model.modules()) else 1
        chunks = zip(self.batch["inputs"].to(dtype).tensor_split(count), self.batch["targets"].tensor_split(count))
        losses, logits = [], []
        for inputs, targets in chunks:
            logits.append(public_models.logits_of(self.name, model, inputs))
            losses.append(F.cross_entropy(logits[-1], targets, reduction="sum") / SAMPLES)
            losses[-1].backward()
        named = lambda kind, tensors: {f"{kind}/{public_models.name_in_files(self.name, key)}": tensor for key, tensor in tensors}
        return ({"loss": sum(losses).detach(), "logits": torch.cat(logits).detach()}
                | named("grad", ((key, parameter.grad) for key, parameter in model.named_parameters()))
                | named("buffer", model.named_buffers()))

    def ours(self, stages, schedule):
        config = self.configuration(pipeline={"stages": stages, "chunks": CHUNKS, "schedule": schedule})
        sluice_cli.must_run("step", config, "--weights", self.folder / "public" / "model.safetensors",
                            "--batch", self.folder / "batch.safetensors", "--out", self.folder / "out.safetensors")
        return {name: tensor for name, tensor in load_file(self.folder / "out.safetensors").items()
                if not name.startswith("param/")}

    def load_what_is_saved(self):
        """After one step of training, from the public weights, in two stages."""
        public, run = self.folder / "public", self.folder / "run"
        self.keys["weights"] = str(public / "model.safetensors")
        sluice_cli.must_run("train", self.configuration(pipeline={"stages": 2}, checkpoint={"every_steps": 1}),
                            "--run-dir", run)
        saved = sluice_cli.checkpoints(run)[1] / "model.safetensors"
        if self.name != "vit":
            self.model.load_state_dict(load_file(saved), strict=True)
            return
        saved.replace(public / "model.safetensors")
        _, found = type(self.model).from_pretrained(public, output_loading_info=True)
        if any(found.values()):
            raise AssertionError(f"transformers reads {saved} with {found}")


def norm(tensors):
    return sum(tensor.double().norm().item() ** 2 for tensor in tensors) ** 0.5


def compare(ours, theirs, tolerance):
    """Returns the worst error of each kind and what is too far off."""
    if ours.keys() != theirs.keys():
        return {}, [f"names differ: {sorted(ours.keys() ^ theirs.keys())[:9]}"]
    kinds = {kind: norm(value for name, value in theirs.items() if name.split("/")[0] == kind) for kind in tolerance}
    worst, bad = dict.fromkeys(kinds, 0.0), []
    for name, expected in theirs.items():
        kind = name.split("/")[0]
        scale = max(norm([expected]), 1e-3 * kinds[kind], 1e-300)
        error = (ours[name].double() - expected.double()).norm().item() / scale
        worst[kind] = max(worst[kind], error)
        if not error <= tolerance[kind]:
            bad.append(f"{name}: {error:.2e} > {tolerance[kind]:.0e}")
    return worst, bad


def in_words(errors):
    return ", ".join(f"{kind} {error:.1e}" for kind, error in errors.items())


def main():
    name, size, stem, precision = sys.argv[1:]
    torch.set_num_threads(2)
    torch.manual_seed(5)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        case = Case(pathlib.Path(folder), name, size, stem, precision)
        theirs, tolerance = case.theirs(), TOLERANCE[precision]
        for stages, schedule in long_tests.some(CI_CUTS[precision], CUTS, "each takes seconds"):
            ours = case.ours(stages, schedule)
            worst, bad = compare(ours, theirs, tolerance)
            if bad and precision == "fp32":
                own, _ = compare(case.theirs(torch.float32), theirs, tolerance)
                print(f"PyTorch's own float32: {in_words(own)}")
                worst, bad = compare(ours, theirs, {kind: max(bound, 3 * own[kind]) for kind, bound in tolerance.items()})
            print(f"{name} {size} {precision}, {stages} stages, {schedule}: {in_words(worst)}", *bad[:9], sep="\n    ",
                  flush=True)
            failed = failed or bool(bad)
        if precision == "fp32":
            case.load_what_is_saved()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
