"""The peer's side of the speed comparison: a training step in PyTorch, written as one writes it today.

    peer_torch.py MODEL [--size tiny] [--start FOLDER [--file FILE [--adamw]]] [--batch 64] [--threads 2] [--steps 20] [--repeats 5]
                  [--layout contiguous|channels_last] [--optimizer default|fused] [--compile] [--precision fp32|bf16]

The ResNets train with SGD and momentum, transformers with AdamW, the same hyper-parameters as bench/train_step. The work
is the same too: the last block of vit computes the class token alone, as ours does, and the malloc settings are
Sluice's. bert and llama are transformers' models with SDPA; --start is the folder of peer_text.py with their weights.
pt2 is the module of an exported --file; --start is the folder of peer_pt2.py with its batch.
--precision bf16: under torch.autocast. --compile: forward, loss and their gradients through torch.compile.
For every line on standard input it times --steps steps and prints one JSON object, so that a driver can let both sides
take turns; with no input at all it runs --repeats times. Started as several processes (RANK, WORLD_SIZE, ...) it is
DistributedDataParallel over Gloo, and each process takes its share of the batch. cpu_ms is processor time over all
threads: on a busy machine compare that. first_losses are those of the first steps, over all processes.
"""

import argparse
import ctypes
import json
import os
import pathlib
import sys
import time

# What device::tune_malloc() sets for Sluice (glibc's parameter, value). Before PyTorch allocates anything.
MALLOC_SETTINGS = {"M_MMAP_THRESHOLD": (-3, 1 << 30), "M_TRIM_THRESHOLD": (-1, (1 << 31) - 1), "M_TOP_PAD": (-2, 64 << 20)}
for name, (parameter, value) in MALLOC_SETTINGS.items():
    if ctypes.CDLL(None).mallopt(parameter, value) != 1:
        sys.exit(f"mallopt refused {name}")

import torch  # noqa: E402
from torch import distributed  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from peer_trainer import Trainer  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "models"))
import torch_models  # noqa: E402  (the twins live with the parity test)


WITH_ADAMW = ("vit", "bert", "llama")


def make_optimizer(model, is_adamw, fused):
    if is_adamw:
        return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fused)
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, fused=fused)


def make_trainer(args):
    torch.manual_seed(0)
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes > 1:
        distributed.init_process_group("gloo")
    rank, weight = int(os.environ.get("RANK", "0")), 1.0
    if args.file:
        import peer_pt2  # noqa: PLC0415

        model, inputs, targets = peer_pt2.load(args.start, args.file, rank, processes)
    elif args.start:
        import peer_text  # noqa: PLC0415  (loads transformers)

        model, inputs, targets, weight = peer_text.load(args.start, args.model, rank, processes)
    else:
        model = torch_models.make(args.model, args.size, class_token_only=True)
        torch.manual_seed(rank)
        inputs = torch.randn(args.batch // processes, 3, 32, 32)
        targets = torch.randint(0, 10, (args.batch // processes,))
    if args.layout == "channels_last":
        model = model.to(memory_format=torch.channels_last)
        inputs = tuple(one.to(memory_format=torch.channels_last) for one in (inputs if isinstance(inputs, tuple) else (inputs,)))
    if processes > 1:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = make_optimizer(model, args.adamw or args.model in WITH_ADAMW, args.optimizer == "fused" or None)
    return Trainer(model, optimizer, inputs, targets, args.compile, args.precision == "bf16", weight)


def first_losses(trainer, steps=3):
    losses = torch.stack([trainer.step().detach() for _ in range(steps)])
    if distributed.is_initialized():
        distributed.all_reduce(losses)
        losses /= distributed.get_world_size()
    return losses.tolist()


def measure(trainer, args, losses):
    if distributed.is_initialized():
        distributed.barrier()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(args.steps):
        loss = trainer.step()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    result = {
        "side": "torch",
        "model": args.model,
        "layout": args.layout,
        "compiled": args.compile,
        "precision": args.precision,
        "samples_per_s": round(args.batch * args.steps / wall, 2),
        "step_ms": round(1e3 * wall / args.steps, 3),
        "cpu_ms": round(1e3 * cpu / args.steps, 3),
        "loss": round(loss.item(), 5),
        "first_losses": losses,
    }
    print(json.dumps(result), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["resnet8", "resnet18", "vgg16", "vit", "mlp", "toy_cnn", "bert", "llama", "pt2"])
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--start", help="folder of peer_text.py, for bert and llama, or of peer_pt2.py")
    parser.add_argument("--file", help="for pt2: what scripts/export_model.py wrote")
    parser.add_argument("--adamw", action="store_true", help="as transformers are trained")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--layout", choices=["contiguous", "channels_last"], default="contiguous")
    parser.add_argument("--optimizer", choices=["default", "fused"], default="default")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    trainer = make_trainer(args)
    losses = first_losses(trainer)
    asked = False
    for _ in sys.stdin:
        asked = True
        measure(trainer, args, losses)
    for _ in range(0 if asked else args.repeats):
        measure(trainer, args, losses)


if __name__ == "__main__":
    main()
