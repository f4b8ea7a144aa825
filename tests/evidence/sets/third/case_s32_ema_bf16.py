"""
title: an EMA at 0.999 kept in bfloat16, copied from the deployed weights
expect: silent:lost-update|precision-loss
modes: diagnose

After d8ahazard/sd_dreambooth_extension#1417: EMA updates in bf16 round to nothing.
Damage: after 60 steps 99.7 % of the EMA's entries have not moved (float32: all have). Right change: the EMA in float32.
"""
import copy

import torch
import torch.nn as nn


class EMAModel:
    def __init__(self, model, decay):
        self.decay = decay
        self.model = copy.deepcopy(model).to(torch.bfloat16)  # BORN
        self.model.requires_grad_(False)

    @torch.no_grad()
    def step(self, model):
        for s, p in zip(self.model.parameters(), model.parameters()):
            s.sub_((1 - self.decay) * (s - p.to(s.dtype)))  # BORN


class UNetLike(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Conv2d(3, 12, 3, padding=1)
        self.mid = nn.Conv2d(12, 12, 3, padding=1)
        self.out = nn.Conv2d(12, 3, 3, padding=1)

    def forward(self, x):
        return self.out(torch.relu(self.mid(torch.relu(self.inp(x)))))


torch.manual_seed(0)
model = UNetLike()
with torch.no_grad():
    for p in model.parameters():
        p.add_(0.2)
ema = EMAModel(model, 0.999)
start = [p.float().clone() for p in ema.model.parameters()]
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(60):
    x = torch.rand(2, 3, 8, 8)
    noise = torch.randn_like(x)
    loss = (model(x + noise) - noise).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    ema.step(model)
still = sum(int((a == b.float()).sum()) for a, b in zip(start, ema.model.parameters()))
total = sum(a.numel() for a in start)
print("ema entries that never moved", still, "of", total, round(still / total, 3))
