"""
title: EMA of a trainer whose model is cast to bfloat16 after the shadow was taken
expect: collision

After lucidrains/ema-pytorch#36 (expected dtype float for `end` but got BFloat16).
Right change: lerp towards p.to(shadow.dtype); the shadow stays in float32.
"""
import copy

import torch
import torch.nn as nn


class Ema:
    def __init__(self, model, decay=0.99):
        self.decay = decay
        self.shadow = copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.lerp_(p, 1.0 - self.decay)  # COLLIDES


def build():
    return nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 3))


def batches(n, dtype):
    gen = torch.Generator().manual_seed(5)
    for _ in range(n):
        x = torch.randn(16, 12, generator=gen)
        y = torch.randint(0, 3, (16,), generator=gen)
        yield x.to(dtype), y


def main():
    torch.manual_seed(0)
    model = build()
    ema = Ema(model)
    model.to(torch.bfloat16)  # BORN
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step, (x, y) in enumerate(batches(6, torch.bfloat16)):
        loss = nn.functional.cross_entropy(model(x).float(), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step >= 2:
            ema.update(model)
    print("ema norm", sum(p.norm().item() for p in ema.shadow.parameters()))


main()
