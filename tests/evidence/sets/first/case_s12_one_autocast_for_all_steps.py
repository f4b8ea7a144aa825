"""
title: one autocast around the whole loop: its cache of bfloat16 weights outlives optimizer.step, the network never changes
expect: silent:plan|lost-update
modes: diagnose

X-GenGroup/Flow-Factory#186 (flat loss, KL of 0). The float32 weights do move; the forward keeps the first cast.
Measured: Loss 1.20774 -> 1.20774 in 12 steps; with cache_enabled=False 0.406.
BORN is the with statement: it must be inside the loop, one for each forward (or cache_enabled=False).
"""
import torch
import torch.nn.functional as F
from torch import nn


class Velocity(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.inner, self.outer = nn.Linear(width, 32), nn.Linear(32, width)

    def forward(self, x):
        return self.outer(F.silu(self.inner(x)))


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        self.losses = []

    def step(self, x, y):
        loss = F.mse_loss(self.model(x).float(), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(round(float(loss.detach()), 6))

    def optimize(self, x, y, steps):
        with torch.autocast("cpu", dtype=torch.bfloat16):  # BORN
            for _ in range(steps):
                self.step(x, y)


torch.manual_seed(0)
trainer = Trainer(Velocity())
x = torch.randn(32, 8)
trainer.optimize(x, x.roll(1, -1), 12)
print(trainer.losses[0], trainer.losses[-1])
