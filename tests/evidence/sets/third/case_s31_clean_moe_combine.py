"""
title: a mixture of experts that routes in float32 and casts the weights back
expect: clean

Looks like moe_combine; the routing weights are cast to the hidden dtype before index_add_.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Expert(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.w1 = nn.Linear(dim, inner, bias=False)
        self.w2 = nn.Linear(inner, dim, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)))


class SparseMoe(nn.Module):
    def __init__(self, dim, experts=4, top_k=2):
        super().__init__()
        self.top_k = top_k
        self.gate = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList(Expert(dim, 2 * dim) for _ in range(experts))

    def forward(self, hidden):
        x = hidden.flatten(0, 1)
        probs = F.softmax(self.gate(x), dim=-1, dtype=torch.float32)
        weight, index = probs.topk(self.top_k, dim=-1)
        weight = (weight / weight.sum(-1, keepdim=True)).to(x.dtype)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            token, slot = torch.where(index == e)
            if token.numel():
                out.index_add_(0, token, expert(x[token]) * weight[token, slot, None])
        return out.view_as(hidden)


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.RMSNorm(dim)
        self.moe = SparseMoe(dim)

    def forward(self, x):
        return x + self.moe(self.norm(x))


torch.manual_seed(0)
net = nn.Sequential(nn.Embedding(40, 16), Layer(16), Layer(16), nn.Linear(16, 40)).to(torch.bfloat16).eval()
with torch.no_grad():
    for _ in range(2):
        ids = torch.randint(0, 40, (2, 9))
        nll = F.cross_entropy(net(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten())
        print("nll", nll.item())
