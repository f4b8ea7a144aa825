"""
title: a program that asks whether a kernel exists and takes another way
expect: clean

Two refusals, both expected and both handled: a probe at the start, and a decomposition that falls back to float32 when
its dtype has no kernel.
"""
import functools

import torch
from torch import nn


@functools.cache
def has_kernel(dtype):
    try:
        torch.linalg.inv(torch.eye(2, dtype=dtype))
    except RuntimeError:
        return False
    return True


def rank(matrix, share=0.9):
    try:
        values = torch.linalg.svdvals(matrix)
    except RuntimeError:
        values = torch.linalg.svdvals(matrix.float())
    return int((values.square().cumsum(0) / values.square().sum() < share).sum()) + 1


def whiten(x):
    centred = x - x.mean(dim=0)
    covariance = centred.t() @ centred / len(x)
    work = covariance if has_kernel(x.dtype) else covariance.float()
    inverse = torch.linalg.inv(work + 0.1 * torch.eye(len(work), dtype=work.dtype))
    return centred @ inverse.to(x.dtype)


torch.manual_seed(0)
network = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2)).to(torch.bfloat16)
with torch.no_grad():
    out = network(whiten(torch.randn(20, 6, dtype=torch.bfloat16)))
print(out.dtype, [rank(layer.weight.detach()) for layer in network if isinstance(layer, nn.Linear)])
