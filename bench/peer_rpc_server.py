"""The peer's side of the parameter-server benchmark: PyTorch's RPC parameter server, in Python.

    peer_rpc_server.py [--megabytes 16] [--shards 4] [--seconds 1] [--transport any|tcp]

The pattern of PyTorch's tutorials (torch.distributed.rpc over TensorPipe): a server that has the parameters and an
optimizer; trainers that call rpc_sync on its method with their gradients, and have the updated parameters as the answer;
the method runs under a lock. Started once for each process with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
(bench/sides.py does): rank 0 is the server, the others are trainers, which compute nothing. For every line on standard
input it measures for --seconds and prints one JSON object, as bench_parameter_server does.

--transport any: what TensorPipe chooses for itself; between processes of one machine that is memory that they read from
each other. tcp: what it has between machines (libuv), with its channel of several connections.

What it has for its speed: our malloc settings, one thread a process, no autograd, parameters in as few tensors as ours,
the fused optimizer; gradients are put in place, not copied. What ours does besides: it looks whether a push is
finite, and sends weights of one version, which an update copies only while they are being sent (here the next update
may change them meanwhile).
"""

import argparse
import collections
import json
import os
import sys
import threading
import time

import peer_torch  # noqa: F401  (before torch: it sets malloc up)
import torch
from torch.distributed import rpc

WARM_UP_S = 0.3  # that does not count
STOP_S = 0.2  # that trainers go on for when the server has counted
TRANSPORTS = {"any": {}, "tcp": {"_transports": ["uv"], "_channels": ["mpt_uv", "basic"]}}
SERVER = "server"


class ParameterServer:
    """One for a process; trainers reach it by its static methods."""

    instance = None

    def __init__(self, args):
        self.parameters = [torch.zeros(elements(args)) for _ in range(args.shards)]
        self.optimizer = torch.optim.SGD(self.parameters, lr=1e-3, fused=True)
        self.lock = threading.Lock()
        self.updates = collections.Counter()  # of each trainer

    @staticmethod
    def update_and_fetch(trainer, gradients):
        server = ParameterServer.instance
        with server.lock:
            for parameter, gradient in zip(server.parameters, gradients):
                parameter.grad = gradient
            server.optimizer.step()
            server.updates[trainer] += 1
            return server.parameters

    def measure(self, args):
        time.sleep(WARM_UP_S)
        cpu, begin, before = time.process_time(), time.perf_counter(), self.updates.copy()
        time.sleep(args.seconds)
        took, after = time.perf_counter() - begin, self.updates.copy()
        cpu = time.process_time() - cpu
        of_trainers = [after[trainer] - before[trainer] for trainer in range(1, rpc_size())]
        updates, size = sum(of_trainers), elements(args) * args.shards * 4
        return {
            "bytes_per_s": 2 * updates * size / took,
            "updates_per_s": updates / took,
            "least_share": min(of_trainers) * len(of_trainers) / updates if updates else 0,
            "cpu_ms": 1e3 * cpu,
        }


def elements(args):
    return max(int(args.megabytes * (1 << 20)) // 4 // args.shards, 1)


def rpc_size():
    return int(os.environ["WORLD_SIZE"])


def check(args, rank):
    """One exchange moves the weights by what SGD does: what is measured is a parameter server."""
    before = rpc.rpc_sync(SERVER, ParameterServer.update_and_fetch, args=(rank, [torch.zeros(elements(args))] * args.shards))
    before = before[0][0].item()
    ones = [torch.ones(elements(args)) for _ in range(args.shards)]
    after = rpc.rpc_sync(SERVER, ParameterServer.update_and_fetch, args=(rank, ones))
    if rpc_size() == 2 and not all(torch.allclose(weights, torch.full_like(weights, before - 1e-3)) for weights in after):
        sys.exit("peer_rpc_server.py: the weights have not moved by the learning rate")


def train(args, rank, gradients):
    until = time.perf_counter() + WARM_UP_S + args.seconds + STOP_S
    while time.perf_counter() < until:
        weights = rpc.rpc_sync(SERVER, ParameterServer.update_and_fetch, args=(rank, gradients))
    if len(weights) != args.shards:
        sys.exit("peer_rpc_server.py: the answer is not the weights")
    return {}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=16)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--transport", choices=TRANSPORTS, default="any")
    return parser.parse_args()


@torch.no_grad()
def main():
    args = parse()
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    if rank == 0:
        ParameterServer.instance = ParameterServer(args)
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=max(rpc_size(), 16), rpc_timeout=120,
                                              **TRANSPORTS[args.transport])
    rpc.init_rpc(SERVER if rank == 0 else f"trainer{rank}", rank=rank, world_size=rpc_size(), rpc_backend_options=options)
    gradients = [torch.full((elements(args),), 1e-6) for _ in range(args.shards)]
    if rank > 0:
        check(args, rank)
    for _ in sys.stdin:
        result = ParameterServer.instance.measure(args) if rank == 0 else train(args, rank, gradients)
        print(json.dumps(result), flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    main()
