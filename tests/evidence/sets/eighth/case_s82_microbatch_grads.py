"""
title: many micro batches: gradients are gathered in a flat buffer before the step
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/pytorch/pytorch/issues/106395
measured: norm of the mean gradient 3.790, exact 29.827
widened: norm of the mean gradient 29.827, exact 29.827

Expectation, written first: the flat gradient buffer is bf16; after a few dozen micro
batches the sum is so large that further contributions round away, so the mean gradient is
far too small.
BORN is the dtype of the buffer; float32 gives the true mean.
"""
import torch
from torch import nn


class GradBuffer:
    """Flat store for the gradients of all parameters."""

    def __init__(self, params):
        self.params = list(params)
        size = sum(p.numel() for p in self.params)
        self.flat = torch.zeros(size, dtype=torch.bfloat16)  # BORN
        self.count = 0

    def add(self, grads):
        self.flat += torch.cat([g.reshape(-1) for g in grads])
        self.count += 1

    def mean(self):
        return self.flat.float() / self.count


class RateModel(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return x @ self.w


def micro_batches(gen, count, size=8):
    for _ in range(count):
        x = torch.rand(size, 6, generator=gen) + 0.5
        yield x, x.sum(1)


def main():
    gen = torch.Generator().manual_seed(0)
    model = RateModel()
    params = list(model.parameters())
    buffer = GradBuffer(params)
    exact = torch.zeros(6, dtype=torch.float64)
    for x, y in micro_batches(gen, 3000):
        loss = nn.functional.mse_loss(model(x), y)
        grads = torch.autograd.grad(loss, params)
        buffer.add(grads)
        exact += grads[0].double() / 3000
    got = buffer.mean().norm().item()
    print("norm of the mean gradient %.3f, exact %.3f" % (got, exact.norm().item()))


if __name__ == "__main__":
    main()
