"""
title: half gradients are scaled before they are summed over ranks and unscaled in float32
expect: clean
thread: https://github.com/NVIDIA/Megatron-LM/issues/1335
measured: final loss 0.01498, in float64 0.01498

Expectation, written first: the scale of 1024 keeps small gradients above the smallest half;
the sum over ranks is widened, unscaled and applied to float32 master weights.
"""
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))


def batches(n):
    gen = torch.Generator().manual_seed(1)
    mix = torch.randn(8, 4, generator=gen) * 0.4
    for _ in range(n):
        x = torch.randn(64, 8, generator=gen)
        yield x, torch.tanh(x @ mix)


def train(steps, lr, scale=1024.0):
    model = network()
    master = [p.detach().clone() for p in model.parameters()]
    model.half()
    for x, y in batches(steps):
        loss = (model(x.half()).float() - y).pow(2).mean()
        grads = torch.autograd.grad(loss * scale, list(model.parameters()))
        for w, p, g in zip(master, model.parameters(), grads):
            dist.all_reduce(g)
            w -= lr * g.float() / (scale * dist.get_world_size())
            p.data.copy_(w)
    return loss.item()


def reference(steps, lr):
    model = network().double()
    params = list(model.parameters())
    for x, y in batches(steps):
        loss = (model(x.double()) - y.double()).pow(2).mean()
        with torch.no_grad():
            for p, g in zip(params, torch.autograd.grad(loss, params)):
                p -= lr * g
    return loss.item()


store = os.path.join(tempfile.mkdtemp(), "store")
dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
half, exact = train(300, 0.2), reference(300, 0.2)
dist.destroy_process_group()
print(f"final loss {half:.5f}, in float64 {exact:.5f}")
