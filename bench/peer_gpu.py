"""The peer's side of scripts/gpu_compare.py: a training step in PyTorch on a GPU, written as one writes it today.

    peer_gpu.py TWIN BATCH IMAGE STEPS [--compile] [--device cpu]

TWIN: arguments of tests/models/torch_models.py as JSON. For every line on standard input it times STEPS steps, from an idle
GPU to an idle GPU, and prints one JSON object. SGD with momentum, fused; fp32 as PyTorch has it by itself; one batch that
lies on the device. --compile: forward and loss through torch.compile. --device cpu: to see that it works.
"""

import argparse
import json
import pathlib
import sys
import time

import torch
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "models"))
import torch_models  # noqa: E402  (the twins live with the parity test)

WARM_UP = 10


def make_model(twin, image):
    """As our models are at this size: ViT's last block computes the class token alone."""
    twin = dict(twin)
    if twin["name"] == "vit" and "patch" in twin:
        return torch_models.ViT(twin.get("size", "tiny"), patch=twin["patch"], image=image, class_token_only=True)
    return torch_models.make(twin.pop("name"), image=image, class_token_only=True, **twin)


class Trainer:
    def __init__(self, args):
        torch.manual_seed(0)
        self.device = torch.device(args.device)
        self.model = make_model(json.loads(args.twin), args.image).to(self.device)
        self.images = torch.randn(args.batch, 3, args.image, args.image, device=self.device)
        self.targets = torch.randint(0, 10, (args.batch,), device=self.device)
        if any(isinstance(module, torch.nn.BatchNorm2d) for module in self.model.modules()):  # a CNN, as ours
            self.model = self.model.to(memory_format=torch.channels_last)
            self.images = self.images.to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.001, momentum=0.9, fused=True)
        self.forward = torch.compile(self.loss) if args.compile else self.loss

    def loss(self):
        return F.cross_entropy(self.model(self.images), self.targets)

    def steps(self, count):
        for _ in range(count):
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.forward()
            loss.backward()
            self.optimizer.step()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("twin")
    parser.add_argument("batch", type=int)
    parser.add_argument("image", type=int)
    parser.add_argument("steps", type=int)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    trainer = Trainer(args)
    trainer.steps(min(WARM_UP, args.steps))
    for _ in sys.stdin:
        began = time.perf_counter()
        loss = trainer.steps(args.steps)
        seconds = time.perf_counter() - began
        print(json.dumps({"samples_per_s": args.batch * args.steps / seconds, "loss": loss.item()}), flush=True)


if __name__ == "__main__":
    main()
