"""
title: a float32 network with float64 metrics that are asked for
expect: clean

Targets come from numpy and are cast at once; sums over the whole data set are taken in double, outside the network.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
rng = np.random.default_rng(0)
network = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
squares, count = torch.zeros((), dtype=torch.float64), 0
for _ in range(4):
    x = torch.from_numpy(rng.normal(size=(16, 5))).float()
    y = torch.as_tensor(rng.normal(size=(16, 1)), dtype=torch.float32)
    out = network(x)
    loss = F.smooth_l1_loss(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        squares += (out.double() - y.double()).square().sum()
        count += len(x)
print(out.dtype, (squares / count).sqrt().dtype)