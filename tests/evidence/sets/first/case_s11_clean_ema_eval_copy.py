"""
title: float32 training under autocast, a float32 EMA, and a bfloat16 copy of it for each validation
expect: clean

The healthy twin of ema_swap: the shadow is float32 and moves, the evaluation model is a separate bfloat16 module that gets the
shadow's values by an explicit cast, its input is cast at the door and its output widened before the metric.
"""
import copy

import torch
from torch import nn


class Upscaler(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.GELU(), nn.Conv2d(width, width, 3, padding=1))
        self.tail = nn.Sequential(nn.Conv2d(width, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x):
        x = self.head(x)
        return self.tail(x + self.body(x))


class EMA:
    def __init__(self, model, decay=0.9):
        self.decay = decay
        self.shadow = {n: p.detach().clone() for n, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        for n, p in model.named_parameters():
            self.shadow[n].lerp_(p.detach(), 1 - self.decay)

    @torch.no_grad()
    def fill(self, module):
        for n, p in module.named_parameters():
            p.copy_(self.shadow[n].to(p.dtype))
        return module


def batch(n=4):
    high = torch.rand(n, 3, 16, 16)
    return nn.functional.avg_pool2d(high, 2), high


@torch.no_grad()
def validate(served):
    low, high = batch()
    return (served(low.to(torch.bfloat16)).float() - high).square().mean().item()


torch.manual_seed(0)
model = Upscaler()
served = copy.deepcopy(model).to(torch.bfloat16).eval()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
ema = EMA(model)
history = [validate(served)]
for step in range(24):
    low, high = batch()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(low)
    loss = (out.float() - high).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema.update(model)
    if step % 8 == 7:
        history.append(validate(ema.fill(served)))
print(history[-1] < history[0])
