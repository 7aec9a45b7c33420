#!/usr/bin/env python3
"""The operations that an operator's call counts, beside PyTorch's own counter.

    operator_flops_test.py        OPERATOR_FLOPS_SAMPLE names the program that makes the calls in C++
"""

import os
import subprocess
import sys

import torch
from torch.nn import functional as F
from torch.utils import flop_counter


def counted(call):
    with flop_counter.FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def convolution_backward(transposed, groups, wanted):
    """With the forward convolution that the C++ program makes, too."""
    x = torch.randn(2, 6, 9, 7)
    weight = torch.randn(6, 8 // groups, 3, 3) if transposed else torch.randn(8, 6 // groups, 3, 3)
    convolve = (x, weight, None, [2, 1], [1, 1], [1, 1], transposed, [0, 0], groups)
    y = torch.ops.aten.convolution(*convolve)
    return counted(lambda: torch.ops.aten.convolution(*convolve)) + counted(lambda: torch.ops.aten.convolution_backward(
        torch.ones_like(y), x, weight, [8], [2, 1], [1, 1], [1, 1], transposed, [0, 0], groups, wanted))


def expected():
    r = torch.randn
    yield "mm", counted(lambda: torch.mm(r(3, 5), r(5, 7)))
    yield "addmm", counted(lambda: torch.addmm(r(7), r(3, 5), r(5, 7)))
    yield "bmm", counted(lambda: torch.bmm(r(4, 3, 5), r(4, 5, 7)))
    yield "baddbmm", counted(lambda: torch.baddbmm(r(4, 3, 7), r(4, 3, 5), r(4, 5, 7)))
    yield "linear", counted(lambda: F.linear(r(4, 3, 5), r(7, 5), r(7)))
    yield "matmul", counted(lambda: torch.matmul(r(4, 2, 3, 5), r(4, 2, 5, 7)))
    yield "conv2d", counted(lambda: F.conv2d(r(2, 6, 9, 7), r(8, 6, 3, 3), r(8), (2, 1), (1, 1)))
    yield "conv2d groups", counted(lambda: F.conv2d(r(2, 6, 9, 7), r(8, 3, 3, 3), None, (2, 1), (1, 1), 1, 2))
    yield "conv2d double", counted(lambda: F.conv2d(r(2, 6, 9, 7).double(), r(8, 6, 3, 3).double(), None, (2, 1), (1, 1)))
    yield "conv_transpose2d", counted(lambda: F.conv_transpose2d(r(2, 6, 9, 7), r(6, 8, 3, 3), None, (2, 1), (1, 1)))
    yield "convolution_backward all", convolution_backward(False, 1, [True, True, True])
    yield "convolution_backward input", convolution_backward(False, 1, [True, False, False])
    yield "convolution_backward weight", convolution_backward(False, 1, [False, True, False])
    # Its weight gradient PyTorch 2.11 counts as if there were no groups.
    yield "convolution_backward groups", convolution_backward(False, 2, [True, False, False])
    yield "convolution_backward transposed", convolution_backward(True, 1, [True, True, True])
    # PyTorch's counter knows the kernels of GPUs; its formulas are those of any.
    query, key = (2, 3, 5, 8), (2, 3, 7, 8)
    forward = flop_counter.sdpa_flop_count(query, key, key)
    yield "attention", forward
    yield "attention and backward", forward + flop_counter.sdpa_backward_flop_count(query, query, key, key)


def main():
    done = subprocess.run([os.environ["OPERATOR_FLOPS_SAMPLE"]], check=True, capture_output=True, text=True)
    found = dict(line.split("\t") for line in done.stdout.splitlines())
    wanted = dict(expected())
    assert found.keys() == wanted.keys(), found.keys() ^ wanted.keys()
    wrong = [f"{name}: {found[name]} operations, PyTorch counts {flops}" for name, flops in wanted.items()
             if int(found[name]) != flops]
    print("\n".join(wrong) or f"{len(wanted)} calls as PyTorch counts them")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
