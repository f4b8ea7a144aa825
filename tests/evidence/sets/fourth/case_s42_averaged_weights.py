"""
title: the averaged copy of a model is kept in bfloat16, with decay 0.9999 it does not move
expect: silent:lost-update|precision-loss|downcast|round-trip
fix_at: 44, 47

After https://github.com/d8ahazard/sd_dreambooth_extension/pull/1415 and pull 1417. Autocast and the bfloat16 images are innocent.
Here the average goes 1.2e-4 of the way (a few entries near zero), repaired 1.6e-3. Right: keep the average in float32.
"""
import copy

import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(24)


class EMA:
    def __init__(self, model, decay=0.9999, dtype=None):
        self.decay = decay
        self.shadow = copy.deepcopy(model).eval().requires_grad_(False)
        if dtype is not None:
            self.shadow.to(dtype)  # BORN

    @torch.no_grad()
    def update(self, model):
        for average, p in zip(self.shadow.parameters(), model.parameters()):
            average.mul_(self.decay).add_(p.to(average.dtype), alpha=1 - self.decay)


def distance(a, b):
    return sum((p.float() - q.float()).square().sum() for p, q in zip(a.parameters(), b.parameters())).sqrt().item()


def images(n, dtype):
    for _ in range(n):
        label = torch.randint(0, 4, (32,))
        picture = 0.4 * torch.randn(32, 1, 8, 8)
        for k in range(4):
            picture[label == k, :, 2 * k:2 * k + 2] += 1.0
        yield picture.to(dtype), label


config = {"lr": 3e-4, "steps": 30, "ema_dtype": torch.bfloat16, "image_dtype": torch.bfloat16}
model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.GELU(), nn.Flatten(), nn.Linear(1024, 32), nn.GELU(), nn.Linear(32, 4))
start = copy.deepcopy(model)
ema = EMA(model, dtype=config["ema_dtype"])
optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
for picture, label in images(config["steps"], config["image_dtype"]):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(picture.to(torch.float32))
    loss = F.cross_entropy(logits.float(), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema.update(model)
first = copy.deepcopy(start).to(next(ema.shadow.parameters()).dtype)
print("loss", round(loss.item(), 4))
print("way of the average", f"{distance(ema.shadow, first) / distance(model, start):.2e}")
