"""
title: an encoder behind integer codes never learns
expect: silent:zero-gradient
"""
import torch
from torch import nn


class Autoencoder(nn.Module):
    def __init__(self, width, codes):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, codes))
        self.decode = nn.Linear(codes, width)

    def forward(self, x):
        bits = self.quantise(self.encode(x))
        return self.decode(bits)

    def quantise(self, z):
        levels = (z * 4).to(torch.int16)  # BORN
        return levels.to(z.dtype) / 4


torch.manual_seed(0)
model = Autoencoder(12, 6)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(4):
    x = torch.randn(16, 12)
    loss = (model(x) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(round(loss.item(), 3))
