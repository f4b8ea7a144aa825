"""
title: float32 EMA of float32 master weights, with a bfloat16 working copy
expect: clean

Looks like ema_lerp; the shadow follows the masters, so every update arrives.
"""
import copy

import torch
import torch.nn as nn


class Ema:
    def __init__(self, params, decay=0.9):
        self.decay = decay
        self.shadow = [p.detach().clone() for p in params]

    @torch.no_grad()
    def update(self, params):
        for s, p in zip(self.shadow, params):
            s.lerp_(p.to(s.dtype), 1.0 - self.decay)


def build():
    return nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 3))


def main():
    torch.manual_seed(0)
    master = build()
    work = copy.deepcopy(master).to(torch.bfloat16)
    ema = Ema(master.parameters())
    opt = torch.optim.AdamW(master.parameters(), lr=1e-2)
    gen = torch.Generator().manual_seed(5)
    for step in range(6):
        x = torch.randn(16, 12, generator=gen)
        y = torch.randint(0, 3, (16,), generator=gen)
        loss = nn.functional.cross_entropy(work(x.to(torch.bfloat16)).float(), y)
        loss.backward()
        for m, w in zip(master.parameters(), work.parameters()):
            m.grad = w.grad.to(m.dtype)
            w.grad = None
        opt.step()
        opt.zero_grad()
        with torch.no_grad():
            for m, w in zip(master.parameters(), work.parameters()):
                w.copy_(m)
        ema.update(master.parameters())
    print("ema norm", sum(s.norm().item() for s in ema.shadow))


main()
