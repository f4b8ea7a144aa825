"""
title: a float32 EMA copy is moved towards a bfloat16 model with lerp_
expect: collision
thread: https://github.com/lucidrains/ema-pytorch/issues/36
fix_at: 18, 21, 25, 29, 41, 46, 65, 66

Expectation, written first: the copy is float32 because it was taken before the engine turned the online model into
bfloat16 (and a float32 average is what one wants); lerp_ wants one dtype. Mend: cast the source to the target's dtype
in the update, where it is called or where it is done (the library's coerce_dtype, which is off by default).
"""
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import nn


def inplace_lerp(tgt, src, weight, coerce_dtype=False):
    if coerce_dtype and tgt.dtype != src.dtype:
        src = src.to(tgt.dtype)
    tgt.lerp_(src, weight)  # BORN COLLIDES


class EMA(nn.Module):
    def __init__(self, model, beta=0.99, update_after=3, coerce_dtype=False):  # BORN
        super().__init__()
        self.beta, self.update_after, self.coerce_dtype = beta, update_after, coerce_dtype
        self.online = [model]
        self.ema_model = deepcopy(model).requires_grad_(False)
        self.steps = 0

    @torch.no_grad()
    def update(self):
        self.steps += 1
        pairs = list(zip(self.ema_model.parameters(), self.online[0].parameters(), strict=True))
        if self.steps <= self.update_after:
            for tgt, src in pairs:
                tgt.copy_(src)
            return
        for tgt, src in pairs:
            inplace_lerp(tgt, src, 1 - self.beta, self.coerce_dtype)  # BORN


class Engine:
    def __init__(self, model, lr, bf16):
        self.module = model.to(torch.bfloat16) if bf16 else model
        self.master = [p.detach().float().clone() for p in model.parameters()]
        self.lr = lr

    def step(self, x, y):
        x = x.to(next(self.module.parameters()).dtype)
        loss = F.mse_loss(self.module(x).float(), y)
        loss.backward()
        with torch.no_grad():
            for p, m in zip(self.module.parameters(), self.master):
                m.sub_(p.grad.float(), alpha=self.lr)
                p.copy_(m)
                p.grad = None
        return loss.item()


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    ema = EMA(model, beta=0.9)  # BORN
    engine = Engine(model, lr=0.05, bf16=True)
    x = torch.randn(128, 8)
    y = x[:, :1] * x[:, 1:2]
    for _ in range(30):
        loss = engine.step(x, y)
        ema.update()
    with torch.no_grad():
        averaged = F.mse_loss(ema.ema_model(x), y).item()
    print(f"online {loss:.2f} averaged {averaged:.2f}")


main()
