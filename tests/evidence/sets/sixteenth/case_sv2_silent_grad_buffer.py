"""
title: an engine adds the gradients of its micro batches in bfloat16
expect: silent:lost-update|precision-loss|gradient-dtype|downcast
thread: https://github.com/deepspeedai/DeepSpeed/issues/1800
measured: intercept 0.2 (the mean of all shops is 1.0)
widened: intercept 1.0 (the mean of all shops is 1.0)

Expectation, written first: after some hundred micro batches one more gradient is below half a step of the sum and is
dropped, so that rare examples late in the accumulation teach nothing. The forward pass is bfloat16 by autocast, which
costs less than the figures show.
"""
import torch
from torch import nn


class Engine:
    def __init__(self, net, lr, micro_batches, grad_dtype=torch.bfloat16):  # BORN
        self.net, self.lr, self.micro = net, lr, micro_batches
        self.grads = [torch.zeros_like(p, dtype=grad_dtype) for p in net.parameters()]  # BORN
        self.seen = 0

    def backward(self, loss):
        loss.backward()
        for g, p in zip(self.grads, self.net.parameters()):
            g += p.grad.to(g.dtype)
            p.grad = None
        self.seen += 1
        if self.seen == self.micro:
            self.step()

    @torch.no_grad()
    def step(self):
        for g, p in zip(self.grads, self.net.parameters()):
            p -= self.lr * g.float() / self.micro
            g.zero_()
        self.seen = 0


class Clicks:
    """each micro batch is of one shop; the last shops of an epoch are the rare ones"""

    def __init__(self, shops, dim):
        self.bias = torch.cat([torch.full((shops * 3 // 4,), 2.0), torch.full((shops // 4,), -2.0)])
        self.weight = torch.randn(dim) / dim**0.5

    def micro_batch(self, k, size=16):
        x = torch.randn(size, len(self.weight))
        return x, x @ self.weight + self.bias[k]


def main():
    torch.manual_seed(17)
    data, micro = Clicks(shops=1024, dim=20), 1024
    net = nn.Linear(20, 1)
    engine = Engine(net, lr=0.25, micro_batches=micro)
    for step in range(12):
        for k in range(micro):
            x, y = data.micro_batch(k)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = net(x)
            engine.backward((out.float()[:, 0] - y).square().mean())
    print(f"intercept {net.bias.item():.1f} (the mean of all shops is {data.bias.mean():.1f})")


main()
