"""
title: the gate of a mixture has bfloat16 weights, as in its checkpoint, and adds up in single precision
expect: clean
thread: https://github.com/vllm-project/vllm-ascend/pull/17068
measured: choices of the wide product 100.0%, busiest expert 977, size 1.0892

Expectation, written first: weights and inputs come from bfloat16, their products fit float32 and the sum is taken
there; the logits never go back to bfloat16, so the experts are those of the wide product.
"""
import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, dim, experts, topk):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, dim))
        self.topk = topk

    def load(self, checkpoint):
        self.weight.data = checkpoint["gate.weight"]

    def forward(self, x):
        logits = x.float() @ self.weight.float().T
        probs = logits.softmax(-1)
        weight, chosen = probs.topk(self.topk, -1)
        return weight / weight.sum(-1, keepdim=True), chosen


class Mixture(nn.Module):
    def __init__(self, dim, experts, topk):
        super().__init__()
        self.gate = Gate(dim, experts, topk)
        self.experts = nn.ModuleList(nn.Linear(dim, dim) for _ in range(experts))
        self.register_buffer("load", torch.zeros(experts, dtype=torch.int64))

    def forward(self, x):
        weight, chosen = self.gate(x)
        self.load += torch.bincount(chosen.flatten(), minlength=len(self.load))
        out = torch.zeros(x.shape)
        for k, expert in enumerate(self.experts):
            token, slot = (chosen == k).nonzero(as_tuple=True)
            out.index_add_(0, token, weight[token, slot, None] * expert(x[token].float()))
        return x.float() + out


def checkpoint(dim, experts):
    return {"gate.weight": (torch.randn(experts, dim) / dim**0.5).to(torch.bfloat16)}


def main():
    torch.manual_seed(4)
    dim, experts = 64, 16
    layer = Mixture(dim, experts, topk=2)
    layer.gate.load(checkpoint(dim, experts))
    x = torch.randn(6000, dim).to(torch.bfloat16)
    with torch.no_grad():
        out = layer(x)
        wide = (x.double() @ layer.gate.weight.double().T).topk(2, -1).indices
        same = (wide.sort(-1).values == layer.gate(x)[1].sort(-1).values).all(-1)
    print(f"choices of the wide product {100 * same.float().mean():.1f}%, busiest expert {layer.load.max().item()}, size {out.norm() / x.norm():.4f}")


main()
