"""
title: sharded optimizer squares half gradients for the global norm
expect: silent:overflow|zero-gradient
thread: https://github.com/facebookresearch/fairscale/pull/263
measured: loss 37564 -> 37564, last norm inf
widened: loss 37564 -> 5861, last norm 1161.4

Expectation, written first: a gradient of a few hundred squares beyond the half range,
the norm is inf, the clip coefficient zero, and the model never moves.
"""
import torch
from torch import nn


class Shard:
    def __init__(self, params):
        self.params = params

    def squared_norm(self):
        total = torch.zeros((), dtype=self.params[0].grad.dtype)
        for p in self.params:
            total = total + p.grad.pow(2).sum()  # BORN
        return total


class ShardedSGD:
    def __init__(self, model, world=2, lr=0.05, max_norm=1.0):
        params = list(model.parameters())
        self.shards = [Shard(params[i::world]) for i in range(world)]
        self.params, self.lr, self.max_norm = params, lr, max_norm
        self.master = [p.detach().float().clone() for p in params]

    @torch.no_grad()
    def step(self):
        norm = sum(s.squared_norm().float() for s in self.shards).sqrt()
        coef = (self.max_norm / (norm + 1e-6)).clamp(max=1.0)
        for w, p in zip(self.master, self.params):
            w.sub_(self.lr * coef * p.grad.float())
            p.copy_(w)
            p.grad = None
        return norm.item()


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Linear(24, 1)).half()  # BORN
    opt = ShardedSGD(model)
    x = torch.randn(256, 10)
    y = 40 * torch.sin(x[:, :1]) + 20 * x[:, 1:2] + 60
    losses = []
    for step in range(300):
        pred = model(x.to(model[0].weight.dtype)).float()
        loss = 8 * (pred - y).pow(2).mean()
        loss.backward()
        norm = opt.step()
        losses.append(loss.item())
    print(f"loss {losses[0]:.0f} -> {losses[-1]:.0f}, last norm {norm:.1f}")


main()
