"""The peer's side of scripts/gpu_compare.py: a training step in PyTorch on a GPU, written as one writes it today.

    peer_gpu.py TWIN BATCH IMAGE STEPS [--compile] [--device cpu]

TWIN: arguments of tests/models/torch_models.py as JSON. For every line on standard input it times STEPS steps, from an idle
GPU to an idle GPU, and prints one JSON object. SGD with momentum, fused; fp32 with TF32, as ours; one batch that
lies on the device. --compile: forward and loss through torch.compile. --device cpu: to see that it works.
"""

import argparse
import json
import pathlib
import sys
import time

import torch

from peer_trainer import Trainer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "models"))
import torch_models  # noqa: E402  (the twins live with the parity test)

WARM_UP = 10


def make_model(twin, image):
    """As our models are at this size: ViT's last block computes the class token alone."""
    twin = dict(twin)
    if twin["name"] == "vit" and "patch" in twin:
        return torch_models.ViT(twin.get("size", "tiny"), patch=twin["patch"], image=image, class_token_only=True)
    return torch_models.make(twin.pop("name"), image=image, class_token_only=True, **twin)


def make_trainer(args):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.manual_seed(0)
    model = make_model(json.loads(args.twin), args.image).to(args.device)
    images = torch.randn(args.batch, 3, args.image, args.image, device=args.device)
    targets = torch.randint(0, 10, (args.batch,), device=args.device)
    if any(isinstance(module, torch.nn.BatchNorm2d) for module in model.modules()):  # a CNN, as ours
        model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, fused=True)
    return Trainer(model, optimizer, images, targets, args.compile)


def make_steps(trainer, count):
    """The last loss; until the GPU is idle."""
    for _ in range(count):
        loss = trainer.step()
    if trainer.images.is_cuda:
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
    trainer = make_trainer(args)
    make_steps(trainer, min(WARM_UP, args.steps))
    for _ in sys.stdin:
        began = time.perf_counter()
        loss = make_steps(trainer, args.steps)
        seconds = time.perf_counter() - began
        print(json.dumps({"samples_per_s": args.batch * args.steps / seconds, "loss": loss.item()}), flush=True)


if __name__ == "__main__":
    main()
