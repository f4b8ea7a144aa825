"""
title: a mask of -1e5 is -inf in half, so a row of pads gives NaN; the scores are in half and harmless
expect: silent:overflow|precision-loss
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(14)

def mask_of(pads):
    mask = torch.zeros(pads.shape).masked_fill(pads, -1e5)
    return mask.half()  # BORN

scores = torch.randn(4, 8)
scores = scores.half()
pads = torch.zeros(4, 8, dtype=torch.bool)
pads[2] = True
pads[3, 4:] = True
weights = (scores.float() + mask_of(pads).float()).softmax(-1)
result = weights.square().sum()
print(f"{result:.3g}")
