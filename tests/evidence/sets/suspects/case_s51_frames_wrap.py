"""
title: a difference of bytes wraps; the labels are bytes too and fit
expect: silent:overflow|precision-loss
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(15)

def motion(frames, labels):
    labels = labels.to(torch.uint8)
    change = frames[1:] - frames[:-1]  # BORN
    return change.float().abs().mean((1, 2)) * labels.float()

frames = torch.randint(0, 256, (9, 16, 16), dtype=torch.uint8)
labels = torch.randint(0, 3, (8,))
result = motion(frames, labels).mean()
print(f"{result:.3g}")
