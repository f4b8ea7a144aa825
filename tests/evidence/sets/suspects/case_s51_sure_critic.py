"""
title: one minus a sigmoid is zero in bfloat16; the images are rounded and harmless
expect: silent:underflow|overflow|precision-loss
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(25)

critic = nn.Linear(16, 1)
images = torch.randn(128, 16)
images = images.bfloat16().float()
with torch.no_grad():
    logits = 4 * critic(images) + 7
    p = logits.sigmoid()
    p = p.bfloat16().float()  # BORN
    result = -(1 - p + 1e-12).log().mean()
print(f"{result:.3g}")
