"""The peer's side of the pipeline benchmark: torch.distributed.pipelining, one process a stage, Gloo over loopback.

    peer_pipelining.py MODEL --partition 5,5 [--schedule 1f1b|gpipe] [--chunks 4] [--batch 64] [--steps 20]
                       [--layout contiguous|channels_last] [--compile] [--size tiny] [--image-size 32]

Started once for every stage with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (bench/sides.py does). --partition
counts the layers of our models (models/*.cpp), of which each twin is a list here too. Hyper-parameters are those of
bench/train_step. For every line on standard input it times --steps steps and prints one JSON object, the same in every
process but for cpu_ms:

  pass_ms    schedule.step(), behind a barrier: from the first process's start to the last one's end
  forward_ms, backward_ms   [stage]: a micro-batch's forward_one_chunk, on the last stage with the loss, and its
             backward_one_chunk; nothing is sent or waited for in these
  samples_per_s, step_ms   whole steps: zero_grad, barrier, pass, optimizer

What is done for its speed: our malloc settings; one thread a process; fused optimizers; losses summed and divided by the
batch in the loss, so that no gradient is scaled afterwards; no outputs collected; channels_last activations cross as
contiguous views; vit's last block computes the class token alone, as ours does; with --compile each stage through
torch.compile.
Before anything is timed, the losses of two steps must be those of the uncut model.
"""

import argparse
import datetime
import json
import os
import sys
import time

# Loopback; read when the process group is made.
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import peer_torch  # noqa: E402  (before torch: it sets malloc up; it also finds the twins)
import torch  # noqa: E402
import torch_models  # noqa: E402
from torch import distributed, nn  # noqa: E402
from torch.distributed import pipelining  # noqa: E402
from torch.nn import functional as F  # noqa: E402

SCHEDULES = {"1f1b": pipelining.Schedule1F1B, "gpipe": pipelining.ScheduleGPipe}
TIMEOUT = datetime.timedelta(minutes=5)
CHECKED_STEPS = 2


class Layer(nn.Module):
    """A part of a twin that is no module of its own: a function, and the modules that it uses."""

    def __init__(self, function, *used):
        super().__init__()
        self.function = function
        self.used = nn.ModuleList(used)

    def forward(self, x):
        return self.function(x)


class ChannelsFirst(nn.Module):
    """Behind a border: [N, H, W, C] as it lies in memory -> [N, C, H, W], channels_last."""

    def forward(self, x):
        return x.permute(0, 3, 1, 2)


class ChannelsLast(nn.Module):
    """Before a border: [N, C, H, W] -> [N, H, W, C]; a contiguous view where x is channels_last."""

    def forward(self, x):
        return x.permute(0, 2, 3, 1).contiguous()


def resnet_layers(twin):
    stem = [part for part in (twin.conv1, twin.bn1, twin.relu, getattr(twin, "maxpool", None)) if part is not None]
    groups = [getattr(twin, name) for name in ("layer1", "layer2", "layer3", "layer4") if hasattr(twin, name)]
    head = nn.Sequential(twin.avgpool, nn.Flatten(1), twin.fc)
    return [nn.Sequential(*stem), *(block for group in groups for block in group), head]


def vit_layers(twin):
    layers = [Layer(twin.embed, twin.vit.embeddings)]
    for block, (attend, feed_forward) in zip(twin.vit.encoder.layer, twin.halves()):
        layers.append(Layer(attend, block.layernorm_before, block.attention))
        layers.append(Layer(feed_forward, block.layernorm_after, block.intermediate, block.output))
    return [*layers, Layer(twin.classify, twin.vit.layernorm, twin.classifier)]


def mlp_layers(twin):
    return [nn.Sequential(nn.Flatten(1), twin.fc1, nn.ReLU()), nn.Sequential(twin.fc2, nn.ReLU()), twin.fc3]


LAYERS = {"resnet8": resnet_layers, "resnet18": resnet_layers, "vit": vit_layers, "mlp": mlp_layers}


def make_layers(args):
    """The twin with the same weights in every process, as our list of layers."""
    torch.manual_seed(0)
    twin = torch_models.make(args.model, args.size, image=args.image_size, class_token_only=True).train()
    if args.layout == "channels_last":
        twin = twin.to(memory_format=torch.channels_last)
    return LAYERS[args.model](twin)


def make_batch(args):
    torch.manual_seed(0)
    images = torch.randn(args.batch, 3, args.image_size, args.image_size)
    targets = torch.randint(0, 10, (args.batch,))
    if args.layout == "channels_last":
        images = images.to(memory_format=torch.channels_last)
    return images, targets


class StageTimer:
    """How long some calls took."""

    def __init__(self):
        self.seconds = 0.0

    def around(self, call):
        def timed(*args, **kwargs):
            begin = time.perf_counter()
            result = call(*args, **kwargs)
            self.seconds += time.perf_counter() - begin
            return result

        return timed


class Trainer:
    def __init__(self, args):
        self.args = args
        self.rank, self.stages = distributed.get_rank(), distributed.get_world_size()
        self.forward, self.backward = StageTimer(), StageTimer()
        self.images, self.targets = make_batch(args)
        module = self.cut(make_layers(args))
        self.optimizer = peer_torch.make_optimizer(module, args.model in peer_torch.WITH_ADAMW, fused=True)
        if args.compile:
            module = torch.compile(module)
        stage = pipelining.PipelineStage(module, self.rank, self.stages, torch.device("cpu"))
        stage.forward_one_chunk = self.forward.around(stage.forward_one_chunk)
        stage.backward_one_chunk = self.backward.around(stage.backward_one_chunk)
        self.schedule = SCHEDULES[args.schedule](stage, n_microbatches=args.chunks, scale_grads=False,
                                                 loss_fn=self.forward.around(self.loss))

    def loss(self, logits, targets):
        return F.cross_entropy(logits, targets, reduction="sum") / self.args.batch

    def cut(self, layers):
        begin = sum(self.args.partition[: self.rank])
        own = layers[begin : begin + self.args.partition[self.rank]]
        if self.args.layout == "channels_last" and self.args.model.startswith("resnet"):
            own = own if self.rank == 0 else [ChannelsFirst(), *own]
            own = own if self.is_last() else [*own, ChannelsLast()]
        return nn.Sequential(*own)

    def is_last(self):
        return self.rank == self.stages - 1

    def step(self, losses=None):
        """Returns when its pass began and ended."""
        self.optimizer.zero_grad(set_to_none=True)
        distributed.barrier()
        begin = time.perf_counter()
        inputs = [self.images] if self.rank == 0 else []
        target = self.targets if self.is_last() else None
        self.schedule.step(*inputs, target=target, losses=losses, return_outputs=False)
        end = time.perf_counter()
        self.optimizer.step()
        return begin, end

    def check(self):
        """Takes steps cut and uncut; they must have the same losses."""
        expected = self.losses_of_uncut()
        for number, loss in enumerate(expected, 1):
            losses = [] if self.is_last() else None
            self.step(losses)
            if self.is_last():
                found = sum(part.item() for part in losses)
                if not abs(found - loss) <= 1e-4 * abs(loss):
                    sys.exit(f"peer_pipelining.py: step {number} has the loss {found}, the uncut model {loss}")

    def losses_of_uncut(self):
        model = nn.Sequential(*make_layers(self.args))
        optimizer = peer_torch.make_optimizer(model, self.args.model in peer_torch.WITH_ADAMW, fused=True)
        losses = []
        for _ in range(CHECKED_STEPS):
            optimizer.zero_grad(set_to_none=True)
            parts = [self.loss(model(images), targets) for images, targets in zip(
                self.images.chunk(self.args.chunks), self.targets.chunk(self.args.chunks))]
            torch.autograd.backward(parts)
            optimizer.step()
            losses.append(sum(part.item() for part in parts))
        return losses


def measure(trainer, args):
    distributed.barrier()
    trainer.forward.seconds = trainer.backward.seconds = 0.0
    wall, cpu = time.perf_counter(), time.process_time()
    passes = [trainer.step() for _ in range(args.steps)]
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    of_ranks = [None] * trainer.stages
    distributed.all_gather_object(of_ranks, {"passes": passes, "wall": wall, "forward": trainer.forward.seconds,
                                             "backward": trainer.backward.seconds})
    spans = [(min(begin for begin, _ in ranks), max(end for _, end in ranks))
             for ranks in zip(*(of_rank["passes"] for of_rank in of_ranks))]
    wall = max(of_rank["wall"] for of_rank in of_ranks)

    def of_stages(what):  # milliseconds of a micro-batch
        return [round(1e3 * of_rank[what] / (args.steps * args.chunks), 5) for of_rank in of_ranks]

    return {
        "side": "torch.distributed.pipelining",
        "model": args.model,
        "layout": args.layout,
        "compiled": args.compile,
        "schedule": args.schedule,
        "partition": args.partition,
        "chunks": args.chunks,
        "samples_per_s": round(args.batch * args.steps / wall, 2),
        "step_ms": round(1e3 * wall / args.steps, 3),
        "cpu_ms": round(1e3 * cpu / args.steps, 3),
        "pass_ms": round(1e3 * sum(end - begin for begin, end in spans) / args.steps, 4),
        "forward_ms": of_stages("forward"),
        "backward_ms": of_stages("backward"),
    }


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=LAYERS)
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--partition", type=lambda text: [int(word) for word in text.split(",")], required=True)
    parser.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
    parser.add_argument("--chunks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--layout", choices=["contiguous", "channels_last"], default="contiguous")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if len(args.partition) != processes or processes < 2:
        parser.error(f"--partition has {len(args.partition)} stages and WORLD_SIZE is {processes}; start one process "
                     "for each of at least 2 stages")
    if args.batch % args.chunks:
        parser.error(f"--batch {args.batch} is no multiple of --chunks {args.chunks}; PyTorch wants equal shapes")
    layers = len(make_layers(args))
    if sum(args.partition) != layers or min(args.partition) < 1:
        parser.error(f"--partition {args.partition} does not cut the {layers} layers of {args.model}")
    return args


def main():
    torch.set_num_threads(1)
    args = parse()
    distributed.init_process_group("gloo", timeout=TIMEOUT)
    trainer = Trainer(args)
    trainer.check()
    trainer.step()
    for _ in sys.stdin:
        print(json.dumps(measure(trainer, args)), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
