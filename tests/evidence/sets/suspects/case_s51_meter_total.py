"""
title: a total in bfloat16 stops growing; each loss is rounded too
expect: silent:lost-update|downcast|precision-loss
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(9)

class Meter:
    def __init__(self):
        self.total = torch.zeros((), dtype=torch.bfloat16)  # BORN
        self.count = 0

    def add(self, loss):
        self.total += loss
        self.count += 1

meter = Meter()
for batch in range(1200):
    loss = (1 + 0.2 * torch.rand(32)).mean()
    meter.add(loss.bfloat16().to(meter.total.dtype))
result = meter.total.float() / meter.count
print(f"{result:.3g}")
