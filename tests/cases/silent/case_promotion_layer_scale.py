"""
title: layer scale kept in float32 by its initialiser widens the residual stream of every later block
expect: silent:promotion

The factor is replaced after the model was cast. Under autocast the matmuls stay bfloat16, so the only symptom is the
memory: everything between them is float32.
"""
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.mix = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.scale = nn.Parameter(torch.empty(width))

    def forward(self, x):
        return x + self.scale * self.mix(self.norm(x))


def initialise(model, depth):
    for block in model:
        block.scale = nn.Parameter(torch.full_like(block.scale, 0.1 / depth, dtype=torch.float))  # BORN
    return model


torch.manual_seed(0)
model = initialise(nn.Sequential(*(Block(16) for _ in range(5))).to(torch.bfloat16), depth=5)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(3):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(torch.randn(4, 8, 16).to(torch.bfloat16))
        loss = out.float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(out.dtype)