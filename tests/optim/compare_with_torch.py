#!/usr/bin/env python3
"""Fifty steps of each optimizer under each setting of parameter groups beside torch.optim's and timm's, in float64: values
and states, also of parameters that freeze and thaw. Exits 77 without timm.

    compare_with_torch.py --dump optimizer_dump
"""

import argparse
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch

import long_tests

try:
    from safetensors.torch import load_file, save_file
    from timm.optim import Lamb
except ModuleNotFoundError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

STEPS, LR = 50, 0.02
SIZES = (1000, 24, 8, 333, 64, 8)  # of parameters; each begins at a multiple of 8, as in a stage
GROUPS = {
    "none": [(True, 1.0)] * len(SIZES),
    "no decay": [(True, 1.0), (False, 1.0), (False, 1.0), (True, 1.0), (True, 1.0), (False, 1.0)],
    "head": [(True, 1.0)] * 4 + [(True, 5.0)] * 2,
    "both": [(True, 1.0), (False, 1.0), (True, 1.0), (False, 1.0), (True, 0.1), (False, 0.1)],
}
BETAS = {"beta1": 0.8, "beta2": 0.95, "eps": 1e-6}
KINDS = {
    "sgd": ({"kind": "sgd"}, lambda groups: torch.optim.SGD(groups)),
    "momentum": ({"kind": "momentum", "momentum": 0.8}, lambda groups: torch.optim.SGD(groups, momentum=0.8)),
    "nesterov": ({"kind": "momentum", "momentum": 0.8, "nesterov": True},
                 lambda groups: torch.optim.SGD(groups, momentum=0.8, nesterov=True)),
    "rmsprop": ({"kind": "rmsprop", "rms_alpha": 0.9, "eps": 1e-6},
                lambda groups: torch.optim.RMSprop(groups, alpha=0.9, eps=1e-6)),
    **{name + ("+amsgrad" if amsgrad else ""): (
        {"kind": name, "amsgrad": amsgrad, **BETAS},
        lambda groups, make=make, amsgrad=amsgrad: make(groups, betas=(0.8, 0.95), eps=1e-6, amsgrad=amsgrad))
       for name, make in (("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)) for amsgrad in (False, True)},
    "lamb": ({"kind": "lamb", **BETAS},
             lambda groups: Lamb(groups, betas=(0.8, 0.95), eps=1e-6, max_grad_norm=None)),
}
STATES = {"momentum_buffer", "square_avg", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}
DUMP = None


class FiftySteps(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        draw = torch.Generator().manual_seed(3)
        starts = [0, *itertools.accumulate(-(-size // 8) * 8 for size in SIZES)]
        self.places = [(start, start + size) for start, size in zip(starts, SIZES)]
        used = torch.zeros(starts[-1], dtype=torch.float64)
        for begin, end in self.places:
            used[begin:end] = 1  # what is between the parameters is 0 and stays so
        self.values = torch.randn(starts[-1], generator=draw, dtype=torch.float64) * used
        self.gradients = torch.randn(STEPS, starts[-1], generator=draw, dtype=torch.float64) * used
        self.gradients[STEPS // 2:] *= 0.1  # what amsgrad remembers is larger
        save_file({"values": self.values, "gradients": self.gradients}, self.folder / "in")

    def ours(self, options, groups, parts=1, decay=0.1, phases=((STEPS, 0),)):
        ranges = [[begin, end, *group] for (begin, end), group in zip(self.places, groups)]
        words = {**options, "lr": LR, "weight_decay": decay, "ranges": ranges, "parts": parts, "phases": phases}
        subprocess.run([DUMP, self.folder / "in", self.folder / "out", json.dumps(words)], check=True)
        return load_file(self.folder / "out")

    def theirs(self, make, groups, decay=0.1, phases=((STEPS, 0),)):
        """Their parameters, optimizer, and the average of the parameters over every third step. A frozen parameter has no
        gradient."""
        parameters = [torch.nn.Parameter(self.values[begin:end].clone()) for begin, end in self.places]
        optimizer = make([{"params": [parameter], "lr": LR * factor, "weight_decay": decay if decays else 0.0}
                          for parameter, (decays, factor) in zip(parameters, groups)])
        module = torch.nn.ParameterList(parameters)
        average = torch.optim.swa_utils.AveragedModel(
            module, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.7))
        first_trained = [first for steps, first in phases for _ in range(steps)]
        for step, (gradient, first) in enumerate(zip(self.gradients, first_trained, strict=True)):
            for index, (parameter, (begin, end)) in enumerate(zip(parameters, self.places)):
                parameter.grad = gradient[begin:end].clone() if index >= first else None
            optimizer.step()
            for group in optimizer.param_groups[:first]:
                if "step" in group:  # timm's Lamb counts by group, whether its parameter has a gradient or not
                    group["step"] -= 1
            if (step + 1) % 3 == 0:
                average.update_parameters(module)
        return parameters, optimizer, list(average.module.parameters())

    def assert_near(self, ours, theirs, what):
        self.assertLessEqual((ours - theirs).norm().item(), 1e-10 * theirs.norm().item(), what)

    def test_values_and_states(self):
        every = list(itertools.product(KINDS, GROUPS))
        in_turns = [one for i, one in enumerate(every) if (i + i // len(GROUPS)) % len(GROUPS) == 0]
        for name, setting in long_tests.some(in_turns, every, "one setting of each kind, in turns"):
            (options, make), groups = KINDS[name], GROUPS[setting]
            with self.subTest(name, groups=setting):
                found = self.ours({**options, "ema_decay": 0.7, "ema_every": 3}, groups)
                parameters, optimizer, averages = self.theirs(make, groups)
                states = STATES & set(optimizer.state[parameters[0]])
                if name in ("sgd", "momentum", "nesterov"):
                    states = {"momentum_buffer"} - ({"momentum_buffer"} if name == "sgd" else set())
                self.assertEqual(set(found), {"values", "ema", *states})
                for parameter, average, (begin, end) in zip(parameters, averages, self.places):
                    self.assert_near(found["values"][begin:end], parameter.detach(), "values")
                    self.assert_near(found["ema"][begin:end], average.detach(), "average")
                    for state in states:
                        self.assert_near(found[state][begin:end], optimizer.state[parameter][state], state)
                for tensor in found.values():
                    gaps = tensor.clone()
                    for begin, end in self.places:
                        gaps[begin:end] = 0
                    self.assertEqual(gaps.abs().sum().item(), 0)

    def test_parts_make_no_difference(self):
        for name, (options, _) in KINDS.items():
            whole = self.ours(options, GROUPS["both"])
            for parts in long_tests.some((3,), (2, 3, 7), "another number of parts"):
                with self.subTest(name, parts=parts):
                    for key, tensor in self.ours(options, GROUPS["both"], parts).items():
                        self.assertTrue(torch.equal(tensor, whole[key]), key)

    def test_what_thaws_goes_on_as_torchs_does(self):
        """PyTorch counts updates for each parameter: the bias correction of one that was frozen is that of its own updates,
        not that of the run's steps. Each phase has an optimizer of its own, which goes on from the one before."""
        there_and_back = ((4, 0), (20, 4), (6, 2), (5, 2), (15, 0))  # of the third and fourth one resumes the other
        first_time = ((40, 2), (10, 0))
        cases = [(name, there_and_back) for name in KINDS] + [("adamw", first_time), ("lamb", first_time)]
        for name, phases in cases:
            options, make = KINDS[name]
            with self.subTest(name, phases=phases):
                found = self.ours(options, GROUPS["both"], parts=2, phases=phases)
                parameters, optimizer, _ = self.theirs(make, GROUPS["both"], phases=phases)
                for parameter, (begin, end) in zip(parameters, self.places):
                    self.assert_near(found["values"][begin:end], parameter.detach(), "values")
                    for state in set(found) - {"values"}:
                        self.assert_near(found[state][begin:end], optimizer.state[parameter][state], state)

    def test_without_decay(self):
        """LAMB has no trust ratio then."""
        for name in ("lamb", "adamw"):
            options, make = KINDS[name]
            found = self.ours(options, GROUPS["head"], decay=0.0)
            parameters, _, _ = self.theirs(make, GROUPS["head"], decay=0.0)
            for parameter, (begin, end) in zip(parameters, self.places):
                self.assert_near(found["values"][begin:end], parameter.detach(), name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dump", required=True)
    DUMP, rest = (lambda parsed: (parsed[0].dump, parsed[1]))(parser.parse_known_args())
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
