"""
title: the running total of a half evaluation is half itself and stops growing
expect: silent:downcast

Each loss is float32, as losses are; the total takes the dtype of the model's output.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Meter:
    def __init__(self, like):
        self.total = torch.zeros((), dtype=like.dtype)  # BORN
        self.count = 0

    def update(self, value, count):
        self.total += value.detach() * count
        self.count += count

    def average(self):
        return self.total.item() / self.count


torch.manual_seed(0)
model = nn.Linear(4, 1).to(torch.bfloat16)
meter = None
with torch.no_grad():
    for _ in range(50):
        x = torch.randn(64, 4, dtype=torch.bfloat16)
        out = model(x)
        meter = meter or Meter(out)
        meter.update(F.mse_loss(out.float(), x.float().sum(dim=1, keepdim=True)), len(x))
print(meter.average() > 0)