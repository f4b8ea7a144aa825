"""
title: half-precision training with a scaled loss and float32 master weights
expect: clean
thread: https://github.com/suvojit-0x55aa/mixed-precision-pytorch/issues/2

Expectation, written first: forward and backward run in half, but the loss is scaled,
the gradients are unscaled in float32 and the update is made on float32 master weights. That
is how it is meant; a run in float32 prints the same loss to two digits.
"""
import copy

import torch
from torch import nn


class MasterOptimiser:
    def __init__(self, model, lr, scale):
        self.model, self.scale = model, scale
        self.master = [p.detach().float().clone() for p in model.parameters()]
        for m in self.master:
            m.requires_grad_(True)
        self.inner = torch.optim.Adam(self.master, lr)
        self.skipped = 0

    def backward(self, loss):
        (loss.float() * self.scale).backward()

    def step(self):
        grads = [p.grad.float() / self.scale for p in self.model.parameters()]
        if all(bool(g.isfinite().all()) for g in grads):
            for m, g in zip(self.master, grads):
                m.grad = g
            self.inner.step()
        else:
            self.scale /= 2
            self.skipped += 1
        with torch.no_grad():
            for p, m in zip(self.model.parameters(), self.master):
                p.copy_(m)
                p.grad = None


def spiral(n, gen):
    t = torch.rand(n, generator=gen) * 3
    y = torch.randint(0, 2, (n,), generator=gen)
    angle = t + torch.pi * y
    return torch.stack([t * angle.cos(), t * angle.sin()], 1) / 3, y


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    dtype = torch.float16
    model = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 2))
    model.to(dtype)
    opt = MasterOptimiser(model, lr=2e-2, scale=2.0 ** 10)
    x, y = spiral(32, gen)
    for _ in range(90):
        logits = model(x.to(dtype)).float()
        loss = nn.functional.cross_entropy(logits, y)
        opt.backward(loss)
        opt.step()
    accuracy = (logits.argmax(1) == y).float().mean().item()
    print("accuracy %.2f, loss below 0.1: %s" % (accuracy, loss.item() < 0.1))


if __name__ == "__main__":
    main()
