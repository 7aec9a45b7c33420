"""torchrun's worker for bench/goodput.py --peer: DDP on Gloo, a checkpoint every 20 steps, from which a restart goes on.

    peer_elastic.py FOLDER MODEL BATCH       MODEL: resnet8, resnet18, sleepers; BATCH: samples of all processes
"""

import json
import os
import pathlib
import sys
import time

import torch
from torch import distributed
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "models"))
import torch_models  # noqa: E402

EVERY_STEPS = 20
SLEEP_S = 0.064


def main():
    folder, name, batch = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    model = DistributedDataParallel(torch_models.make("mlp" if name == "sleepers" else name))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    step, checkpoint = 0, folder / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    with open(folder / "steps.jsonl", "a", encoding="utf-8") as records:
        while True:
            begin = time.monotonic()
            random = torch.Generator().manual_seed(step * size + rank)
            images = torch.randn(batch // size, 3, 32, 32, generator=random)
            targets = torch.randint(10, (batch // size,), generator=random)
            optimizer.zero_grad(set_to_none=True)
            if name == "sleepers":
                time.sleep(SLEEP_S)
            F.cross_entropy(model(images), targets).backward()
            optimizer.step()
            step += 1
            if rank == 0:
                records.write(json.dumps([step, time.monotonic() - begin, time.time()]) + "\n")
                records.flush()
            if rank == 0 and step % EVERY_STEPS == 0:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, folder / "new.pt")
                os.replace(folder / "new.pt", checkpoint)


if __name__ == "__main__":
    main()
