"""
title: half gradients kept alive by a loss scale written by hand
expect: clean
thread: https://github.com/warner-benjamin/optimi/pull/15
measured: final loss half 0.0788, double 0.0788, skipped 0

Expectation, written first: without the scale most half gradients would be zero; with
2^14 none is lost and none overflows, they are unscaled in float32 before the master
weights move, and the loss follows the float64 run.
"""
import torch
from torch import nn


class ScaledTrainer:
    def __init__(self, model, lr, scale=2.0 ** 14):
        self.master = [p.detach().clone() for p in model.parameters()]
        self.model = model.to(torch.float16)
        self.lr, self.scale, self.skipped, self.good = lr, scale, 0, 0

    def step(self, x, y):
        out = self.model(x.to(torch.float16))
        loss = 1e-3 * (out.float() - y).pow(2).mean()
        grads = torch.autograd.grad(loss * self.scale, list(self.model.parameters()))
        if not all(torch.isfinite(g).all() for g in grads):
            self.scale, self.skipped, self.good = self.scale / 2, self.skipped + 1, 0
            return loss.item()
        self.good += 1
        if self.good == 200:
            self.scale, self.good = min(self.scale * 2, 2.0 ** 16), 0
        with torch.no_grad():
            for w, p, g in zip(self.master, self.model.parameters(), grads):
                w -= self.lr * g.float() / self.scale
                p.copy_(w)
        return loss.item()


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 256))


def data(n):
    gen = torch.Generator().manual_seed(1)
    mix = torch.randn(12, 256, generator=gen) * 0.3
    for _ in range(n):
        x = torch.randn(32, 12, generator=gen)
        yield x, torch.sin(x @ mix)


def reference(steps, lr):
    model = network().double()
    params = list(model.parameters())
    for x, y in data(steps):
        loss = 1e-3 * (model(x.double()) - y.double()).pow(2).mean()
        with torch.no_grad():
            for p, g in zip(params, torch.autograd.grad(loss, params)):
                p -= lr * g
    return loss.item()


steps, lr = 300, 2e4
trainer = ScaledTrainer(network(), lr)
for x, y in data(steps):
    last = trainer.step(x, y)
print(f"final loss half {1e3 * last:.4f}, double {1e3 * reference(steps, lr):.4f}, skipped {trainer.skipped}")
