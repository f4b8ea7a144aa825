"""
title: sums of squares kept in float64 are infinite once they are stored as float32
expect: silent:overflow
"""
import torch


def accumulate(batches):
    total = torch.zeros(4, dtype=torch.float64)
    for batch in batches:
        total += batch.double().pow(8).sum(dim=0)
    return total


torch.manual_seed(0)
moments = accumulate(torch.randn(3, 16, 4) * 1e5)
stored = moments.to(torch.float32)  # BORN
print((stored - stored.mean()).tolist())
