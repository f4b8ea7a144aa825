"""
title: float16 autocast with a GradScaler
expect: clean

Looks like no_scaler; the scaled gradients are representable.
"""
import torch
import torch.nn as nn


class Depth(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(24, 32)
        self.dec = nn.Linear(32, 64)

    def forward(self, x):
        return self.dec(torch.tanh(self.enc(x)))


class Trainer:
    def __init__(self, model, lr=1e-3):
        self.model = model
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)
        self.scaler = torch.amp.GradScaler("cpu")
        self.weight = 0.1

    def step(self, x, y):
        with torch.autocast("cpu", dtype=torch.float16):
            pred = self.model(x)
            loss = self.weight * nn.functional.smooth_l1_loss(pred.float(), y)
        self.opt.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.opt)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0).item()
        self.scaler.step(self.opt)
        self.scaler.update()
        return loss.item(), norm


torch.manual_seed(0)
trainer = Trainer(Depth())
for i in range(4):
    x = torch.randn(64, 24)
    loss, norm = trainer.step(x, torch.relu(x[:, :1]).expand(-1, 64) * 0.3)
    print("step", i, "loss", round(loss, 5), "gradient", f"{norm:.2e}")
