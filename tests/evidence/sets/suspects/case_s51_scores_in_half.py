"""
title: scores overflow in half; the values are in half and harmless
expect: silent:overflow|precision-loss
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(13)

def attend(q, k, v):
    q, k = (t.half() for t in (q, k))  # BORN
    v = v.half()
    weights = (q @ k.mT).float().mul(0.01).softmax(-1)
    return weights @ v.float()

q, k, v = (torch.randn(8, 64) for _ in range(3))
result = attend(150 * q, 150 * k, v).square().mean()
print(f"{result:.3g}")
