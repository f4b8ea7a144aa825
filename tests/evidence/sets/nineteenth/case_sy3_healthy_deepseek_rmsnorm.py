"""
title: bfloat16 decoder whose RMSNorm computes in float32 and rounds its output back
expect: clean
thread: https://github.com/deepseek-ai/DeepSeek-V3/pull/969
measured: loss float32 4.318 bfloat16 4.318 relative difference below 1%: True
suspect: 30 contract (the norm works in float32 inside and gives back the activations' dtype)

Expectation, written first: weights and activations are bfloat16 by design; RMSNorm and the gate take the input to float32, do the sum of
squares and the sigmoid there, and cast the result back to the activation's dtype, as every block expects. Logits are float32. The bfloat16
model's loss agrees with the float32 model's to the precision of the format.
"""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.dim, self.eps = dim, eps
        self.weight = nn.Parameter(torch.ones(dim, dtype=torch.float32))

    def forward(self, x):
        dtype = x.dtype
        x = x.to(torch.float32)
        var = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(var + self.eps)
        return (self.weight * x).to(dtype)


class Gate(nn.Module):
    def __init__(self, dim, n_experts, topk, route_scale=2.5):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_experts, dim) * dim**-0.5)
        self.topk, self.route_scale = topk, route_scale

    def forward(self, x):
        scores = F.linear(x.float(), self.weight.float()).sigmoid()
        weights, indices = torch.topk(scores, self.topk, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True) * self.route_scale
        return weights.type_as(x), indices


class MoE(nn.Module):
    def __init__(self, dim, inter, n_experts, topk):
        super().__init__()
        self.gate = Gate(dim, n_experts, topk)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(dim, inter), nn.SiLU(), nn.Linear(inter, dim)) for _ in range(n_experts))

    def forward(self, x):
        flat = x.view(-1, x.size(-1))
        weights, indices = self.gate(flat)
        y = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            idx, top = torch.where(indices == i)
            y[idx] += expert(flat[idx]) * weights[idx, top, None]
        return y.view_as(x)


class Transformer(nn.Module):
    def __init__(self, vocab=64, dim=48, n_layers=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(nn.ModuleList([RMSNorm(dim), MoE(dim, 64, 4, 2)]) for _ in range(n_layers))
        self.norm, self.head = RMSNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        h = self.embed(tokens)
        for norm, ffn in self.layers:
            h = h + ffn(norm(h))
        return self.head(self.norm(h)).float()


@torch.no_grad()
def main():
    torch.manual_seed(0)
    reference = Transformer().eval()
    model = copy.deepcopy(reference).to(torch.bfloat16)
    tokens, labels = torch.randint(0, 64, (8, 32)), torch.randint(0, 64, (8 * 32,))
    loss_ref = F.cross_entropy(reference(tokens).flatten(0, 1), labels).item()
    loss = F.cross_entropy(model(tokens).flatten(0, 1), labels).item()
    print(f"loss float32 {loss_ref:.3f} bfloat16 {loss:.3f} relative difference below 1%: {abs(loss / loss_ref - 1) < 0.01}")


if __name__ == "__main__":
    main()
