"""
title: gradients are clipped while they still carry the loss scale, so each update is 65536 times too small
expect: silent:plan|lost-update
modes: diagnose

rwth-i6/returnn#1590, harubaru/waifu-diffusion#64, Lightning#9599. clip_grad_norm_(1.0) sees norms of thousands, and step() then divides by
the scale.
Measured: Loss 0.12377 -> 0.12376 in 20 steps; with unscale_ 0.045.
BORN is the clipping; scaler.unscale_(optimizer) must come before it.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.layers(x).squeeze(-1)


class Trainer:
    def __init__(self, model, lr=0.05, max_norm=1.0):
        self.model, self.max_norm = model, max_norm
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)

    def step(self, x, y):
        with torch.autocast("cpu", dtype=torch.float16):
            prediction = self.model(x)
        loss = F.mse_loss(prediction.float(), y)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)  # BORN
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return float(loss.detach())


torch.manual_seed(0)
trainer = Trainer(Net())
x = torch.randn(64, 8)
y = (x[:, 0] - x[:, 1]) * 0.2
losses = [trainer.step(x, y) for _ in range(20)]
print("first and last loss:", round(losses[0], 5), round(losses[-1], 5))
