"""
title: an int8 key-value cache is written with a static scale of one
expect: silent:integer-truncation|precision-loss|downcast|round-trip|plan
thread: https://github.com/InfiniTensor/InfiniLM/pull/553
measured: right token attended 100%, error of the output 91%
widened: right token attended 100%, error of the output 1%

Expectation, written first: keys and values are of the order of one half and want steps of 0.03; with a scale of one the
cache keeps a few levels of the keys and next to nothing of the values. The query is rounded to bfloat16, which is
harmless.
"""
import torch
from torch import nn


class Int8Cache:
    def __init__(self, scale=1.0):  # BORN
        self.scale = scale
        self.k, self.v = [], []

    def quantise(self, x):
        return (x / self.scale).round().clamp(-128, 127).to(torch.int8)  # BORN

    def append(self, k, v):
        self.k.append(self.quantise(k))
        self.v.append(self.quantise(v))

    def read(self):
        return torch.stack(self.k).float() * self.scale, torch.stack(self.v).float() * self.scale


class Head(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, width, bias=False)
        self.v = nn.Linear(width, width, bias=False)
        nn.init.orthogonal_(self.k.weight)
        with torch.no_grad():
            self.q.weight.copy_(3 * self.k.weight)
            self.v.weight.copy_(0.4 * torch.eye(width))

    def decode(self, x, cache):
        q = self.q(x).to(torch.bfloat16).float()
        k, v = cache.read()
        weight = (k @ q / len(q) ** 0.5).softmax(0)
        return weight @ v, weight.argmax().item()


@torch.no_grad()
def main():
    torch.manual_seed(0)
    head = Head()
    found = 0
    error = norm = 0.0
    for _ in range(10):
        cache = Int8Cache()
        tokens = 0.6 * torch.randn(96, 32)
        for x in tokens:
            cache.append(head.k(x), head.v(x))
        for at in range(0, 96, 8):
            out, seen = head.decode(tokens[at] + 0.02 * torch.randn(32), cache)
            q = head.q(tokens[at])
            exact = (head.k(tokens) @ q / 32**0.5).softmax(0) @ head.v(tokens)
            error += (out - exact).square().sum().item()
            norm += exact.square().sum().item()
            found += seen == at
    print(f"right token attended {100 * found / 120:.0f}%, error of the output {100 * (error / norm) ** 0.5:.0f}%")


main()
