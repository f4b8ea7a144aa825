"""
title: routing weights stay in float32 and meet the bfloat16 output of a mixture of experts
expect: collision
fix_at: 34, 35, 39, 40, 45, 47

After Mixtral-like blocks (huggingface/transformers) where `routing_weights.to(hidden_states.dtype)` was dropped; index_add_.
Right change: cast the routing weights back (or accumulate in float32 and cast the sum).
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

    def route(self, x):
        probs = F.softmax(self.gate(x), dim=-1, dtype=torch.float32)  # BORN
        weight, index = probs.topk(self.top_k, dim=-1)
        weight = weight / weight.sum(-1, keepdim=True)
        return weight, index

    def forward(self, hidden):
        x = hidden.flatten(0, 1)
        weight, index = self.route(x)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            token, slot = torch.where(index == e)
            if token.numel() == 0:
                continue
            y = expert(x[token]) * weight[token, slot, None]
            out.index_add_(0, token, y)  # COLLIDES
        return out.view_as(hidden)


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.RMSNorm(dim)
        self.moe = SparseMoe(dim)

    def forward(self, x):
        return x + self.moe(self.norm(x))


torch.manual_seed(0)
net = nn.Sequential(nn.Embedding(40, 16), Layer(16), Layer(16), nn.Linear(16, 40)).to(torch.bfloat16)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    ids = torch.randint(0, 40, (2, 9))
    loss = F.cross_entropy(net(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
print("loss", loss.item())
