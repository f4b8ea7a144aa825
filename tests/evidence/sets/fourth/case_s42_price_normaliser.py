"""
title: a normaliser turns float64 prices to float32 and then subtracts squares
expect: silent:precision-loss|precision-loss|downcast
fix_at: 23, 24

After https://github.com/huggingface/lerobot/pull/4704 and https://github.com/cellarium-ai/cellarium-ml/issues/113: E[x^2] - E[x]^2 of prices
near 30 000 that move by 1. The inputs' cast to float32 after the normalisation is innocent.
Here the deviation comes out as 0.001 (the clamp) or as 8 to 32 (repaired: 1). Right: the sums in float64.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(28)


class Normaliser:
    def __init__(self, eps=1e-6):
        self.eps = eps

    def fit(self, prices):
        x = prices.to(torch.float32)  # BORN
        self.mean = x.mean(0)
        variance = (x * x).mean(0) - self.mean * self.mean
        self.std = variance.clamp(min=self.eps).sqrt()
        return self

    def __call__(self, prices):
        return ((prices - self.mean) / self.std).to(torch.float32)


def market(length=600, assets=4):
    level = torch.tensor([30000.0, 41000.0, 52000.0, 78000.0], dtype=torch.float64)[:assets]
    noise = torch.zeros(length, assets, dtype=torch.float64)
    for t in range(1, length):
        noise[t] = 0.9 * noise[t - 1] + 0.4359 * torch.randn(assets, dtype=torch.float64)
    return level + noise


def windows(x, past=8):
    return torch.stack([x[i:i + past].flatten() for i in range(len(x) - past)]), x[past:]


prices = market()
normalise = Normaliser().fit(prices[:400])
x, y = windows(normalise(prices))
model = nn.Linear(x.shape[1], y.shape[1])
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(30):
    i = torch.randint(0, 380, (64,))
    loss = F.mse_loss(model(x[i]), y[i])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("deviations", [round(s, 3) for s in normalise.std.tolist()], "loss", round(loss.item(), 4))
