"""
title: gradients of many micro-batches are added up in a bfloat16 buffer
expect: silent:lost-update|precision-loss|gradient-dtype
thread: https://github.com/ISEEKYAN/Megatron-LM/issues/149
measured: first gradient norm 4.18, loss of the last step 8.05
widened: first gradient norm 7.73, loss of the last step 6.70

Expectation, written first: once a sum is some hundred times a contribution the next one is rounded away, so the mean
gradient of 1024 micro-batches is too small and the loss comes down slower. The innocent suspect is the forward pass
under bfloat16 autocast: its gradients are right to two digits, and a wide one alone mends nothing.
"""
import torch
from torch import nn


class Tower(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, x):
        return self.layers(x)[:, 0]


class GradientBuffer:
    """one flat buffer per parameter that lives until the optimizer step"""

    def __init__(self, parameters, dtype):
        self.parameters = list(parameters)
        self.full = [torch.zeros_like(p, dtype=dtype) for p in self.parameters]  # BORN

    def collect(self):
        for p, full in zip(self.parameters, self.full):
            full.add_(p.grad.to(full.dtype))
            p.grad = None

    def take(self, count):
        grads = [f.float() / count for f in self.full]
        for f in self.full:
            f.zero_()
        return grads


class Engine:
    def __init__(self, model, lr, grad_dtype=torch.bfloat16):  # BORN
        self.model, self.lr = model, lr
        self.buffer = GradientBuffer(model.parameters(), grad_dtype)

    def micro_step(self, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            prediction = self.model(x)
        loss = (prediction.float() - y).square().mean()
        loss.backward()
        self.buffer.collect()
        return loss.item()

    @torch.no_grad()
    def step(self, count):
        grads = self.buffer.take(count)
        for p, g in zip(self.model.parameters(), grads):
            p.sub_(self.lr * g)
        return sum(g.square().sum() for g in grads).sqrt().item()


def stream(gen, weights, n=8):
    while True:
        x = torch.randn(n, 32, generator=gen)
        yield x, 3 + 0.3 * x @ weights


def main(micro=1024, steps=2):
    torch.manual_seed(20)
    gen = torch.Generator().manual_seed(21)
    engine = Engine(Tower(), lr=0.05)
    data = stream(gen, torch.randn(32, generator=gen) / 6)
    for step in range(steps):
        losses = [engine.micro_step(*next(data)) for _ in range(micro)]
        norm = engine.step(micro)
        if step == 0:
            first = norm
    print(f"first gradient norm {first:.2f}, loss of the last step {sum(losses) / micro:.2f}")


main()
