"""
title: workers that send bf16 gradients and keep what the rounding lost
expect: clean
thread: https://github.com/deepspeedai/DeepSpeed/issues/1800

Expectation, written first: the gradients cross the wire in bf16, but each worker adds
the part lost by rounding to its next message, and the server sums in float32; training ends
where float32 messages end.
"""
import torch
from torch import nn


class Worker:
    def __init__(self, x, y, wire=torch.bfloat16):
        self.x, self.y, self.wire = x, y, wire
        self.rest = None

    def message(self, weight):
        w = weight.clone().requires_grad_(True)
        loss = nn.functional.mse_loss(self.x @ w, self.y)
        grad = torch.autograd.grad(loss, w)[0]
        if self.rest is None:
            self.rest = torch.zeros_like(grad)
        full = grad + self.rest
        sent = full.to(self.wire)
        self.rest = full - sent.float()
        return sent


class Server:
    def __init__(self, dim, lr):
        self.weight = torch.zeros(dim)
        self.lr = lr

    def round(self, workers):
        total = torch.zeros_like(self.weight)
        for worker in workers:
            total += worker.message(self.weight).float()
        self.weight = self.weight - self.lr * total / len(workers)


def make_workers(count, dim, seed):
    gen = torch.Generator().manual_seed(seed)
    truth = torch.randn(dim, generator=gen)
    workers = []
    for _ in range(count):
        x = torch.randn(64, dim, generator=gen)
        workers.append(Worker(x, x @ truth + 0.01 * torch.randn(64, generator=gen)))
    return truth, workers


def main():
    truth, workers = make_workers(4, dim=10, seed=0)
    server = Server(10, lr=0.05)
    for _ in range(300):
        server.round(workers)
    error = (server.weight - truth).norm().item()
    print("distance to the truth %.3f" % error)


if __name__ == "__main__":
    main()
