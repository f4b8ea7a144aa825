"""
title: sample weights from numpy make the loss and its gradients float64
expect: silent:promotion

numpy's default is float64. Nothing raises: the engine brings the gradients back to float32, after the loss was
computed at a fraction of the speed.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Reader:
    def __init__(self, size, seed=0):
        self.rng = np.random.default_rng(seed)
        self.size = size

    def __iter__(self):
        for _ in range(3):
            features = self.rng.normal(size=(self.size, 6)).astype("float32")
            rarity = 1 / self.rng.integers(1, 20, size=self.size)
            yield torch.from_numpy(features), torch.from_numpy(rarity / rarity.mean())  # BORN


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for features, rarity in Reader(16):
    error = F.l1_loss(model(features), features, reduction="none").mean(dim=1)
    loss = (rarity * error).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.dtype, [p.grad.dtype for p in model.parameters()][0])