"""A training step in PyTorch, as one writes it today: what peer_torch.py and peer_gpu.py time. Not here: model, data, optimizer."""

import torch
from torch.nn import functional as F


class Trainer:
    def __init__(self, model, optimizer, inputs, targets, compiled, bf16=False, weight=1.0):
        """weight: of this process's loss, if processes have different numbers of targets."""
        self.model, self.optimizer, self.targets, self.bf16 = model, optimizer, targets, bf16
        self.inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        self.weight = weight
        self.forward = torch.compile(self.loss) if compiled else self.loss

    def loss(self):
        with torch.autocast(self.inputs[0].device.type, torch.bfloat16, enabled=self.bf16):
            loss = F.cross_entropy(self.model(*self.inputs).flatten(0, -2), self.targets.flatten())
        return loss if self.weight == 1 else loss * self.weight

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.forward()
        loss.backward()
        self.optimizer.step()
        return loss
