"""
title: gradients of 128 workers summed in bfloat16 by a compression hook
expect: silent:gradient-dtype|precision-loss|lost-update|downcast
modes: diagnose

After pytorch/pytorch#190626 / Megatron-Bridge#5411 (reduction in bf16: 9.8 % off).
Damage: the mean gradient is off by 1 to 2 % in norm (float32 sum: 1e-7). Right change: sum in float32 (cast each piece up, or do not cast).
"""
import torch
import torch.nn as nn


class Worker:
    def __init__(self, rank):
        gen = torch.Generator().manual_seed(rank)
        self.x = torch.randn(16, 12, generator=gen) + 0.5
        self.y = self.x[:, :3].sum(-1, keepdim=True) + 5.0

    def gradients(self, model):
        loss = (model(self.x) - self.y).square().mean()
        return torch.autograd.grad(loss, list(model.parameters()))


class BucketReducer:
    def __init__(self, model, wire=torch.bfloat16):  # BORN
        self.wire = wire
        self.buckets = [torch.zeros(p.shape, dtype=wire) for p in model.parameters()]  # BORN

    def add(self, grads):
        for b, g in zip(self.buckets, grads):
            b += g.to(self.wire)  # BORN

    def finish(self, model, world):
        for b, p in zip(self.buckets, model.parameters()):
            p.grad = b.to(p.dtype) / world
            b.zero_()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
workers = [Worker(r) for r in range(128)]
reducer = BucketReducer(model)
for step in range(3):
    exact = [torch.zeros_like(p, dtype=torch.float64) for p in model.parameters()]
    for w in workers:
        grads = w.gradients(model)
        reducer.add(grads)
        for e, g in zip(exact, grads):
            e += g.double() / len(workers)
    reducer.finish(model, len(workers))
    err = sum((p.grad - e).square().sum() for p, e in zip(model.parameters(), exact)).sqrt()
    ref = sum(e.square().sum() for e in exact).sqrt()
    opt.step()
    print("step", step, "relative error of the gradient", f"{(err / ref).item():.1e}")
