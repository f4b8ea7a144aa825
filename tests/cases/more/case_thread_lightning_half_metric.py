"""
title: a confusion-like matrix in float64 is added to by half-precision counts in a validation step
expect: collision
fix_at: 17, 25

A metric's state is float64 (numpy made it) and scatter_add_ takes only its own dtype.
"""
import numpy as np
import torch
from torch import nn


class Metric(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.register_buffer("total", torch.from_numpy(np.zeros(classes)))  # BORN

    def update(self, confidence, target):
        self.total.scatter_add_(0, target, confidence)  # COLLIDES


torch.manual_seed(0)
net, metric = nn.Linear(8, 4), Metric(4)
for _ in range(2):
    logits = net(torch.randn(6, 8))
    confidence = logits.softmax(-1).amax(-1).detach()
    metric.update(confidence, torch.randint(0, 4, (6,)))
print(metric.total.sum() > 0)
