"""The peer's side of bench/gpu.py: a training step in PyTorch on a GPU, written as one writes it today.

    peer_gpu.py TWIN BATCH IMAGE STEPS [--precision bf16] [--compile] [--device cpu]

TWIN: arguments of tests/models/torch_models.py as JSON. For every line on standard input it times STEPS steps, from an idle
GPU to an idle GPU, and prints one JSON object. CNNs by SGD with momentum, transformers by AdamW, fused; bf16 under
torch.autocast, fp32 with TF32 for products and convolutions; one batch that lies on the device. --compile: forward and loss
through torch.compile. --device cpu: to see that it works.
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
    if twin["name"] == "gpt2":
        return torch_models.Gpt2(twin["size"])
    return torch_models.make(twin.pop("name"), image=image, class_token_only=True, **twin)


def make_batch(twin, args):
    """Of texts (tokens, next tokens); else (images, classes)."""
    if twin["name"] == "gpt2":
        *_, vocabulary, context = torch_models.Gpt2.SIZES[twin["size"]]
        tokens = torch.randint(0, vocabulary, (args.batch, context + 1), device=args.device)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    images = torch.randn(args.batch, 3, args.image, args.image, device=args.device)
    return images, torch.randint(0, 10, (args.batch,), device=args.device)


def make_trainer(args):
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    twin = json.loads(args.twin)
    model = make_model(twin, args.image).to(args.device)
    inputs, targets = make_batch(twin, args)
    if any(isinstance(module, torch.nn.BatchNorm2d) for module in model.modules()):  # a CNN, as ours
        model, inputs = model.to(memory_format=torch.channels_last), inputs.to(memory_format=torch.channels_last)
    if twin["name"] in ("vit", "gpt2"):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, weight_decay=0.01, fused=True)
    return Trainer(model, optimizer, inputs, targets, args.compile, args.precision == "bf16")


def make_steps(trainer, count):
    """The last loss; until the GPU is idle."""
    for _ in range(count):
        loss = trainer.step()
    if trainer.inputs[0].is_cuda:
        torch.cuda.synchronize()
    return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("twin")
    parser.add_argument("batch", type=int)
    parser.add_argument("image", type=int)
    parser.add_argument("steps", type=int)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
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
