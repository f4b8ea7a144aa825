"""
title: an MoE router in an autocast-free island widens its tokens first
expect: clean

The healthy twin of case_s21_router_island: the usual way to a float32 router under bfloat16 autocast.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(9)


class Expert(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Router(nn.Module):
    def __init__(self, dim, experts, top):
        super().__init__()
        self.top = top
        self.gate = nn.Linear(dim, experts, bias=False)

    def forward(self, tokens):
        with torch.autocast("cpu", enabled=False):
            scores = torch.softmax(self.gate(tokens.float()), dim=-1)
        weight, index = scores.topk(self.top, dim=-1)
        return weight / weight.sum(-1, keepdim=True), index


class Moe(nn.Module):
    def __init__(self, dim, experts=4, top=2):
        super().__init__()
        self.router = Router(dim, experts, top)
        self.experts = nn.ModuleList(Expert(dim) for _ in range(experts))

    def forward(self, x):
        tokens = x.flatten(0, 1)
        weight, index = self.router(tokens)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            row, slot = (index == number).nonzero(as_tuple=True)
            if len(row):
                out = out.index_add(0, row, (weight[row, slot, None] * expert(tokens[row])).to(out.dtype))
        return out.view_as(x)


class Net(nn.Module):
    def __init__(self, vocab=32, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mix = nn.Linear(dim, dim)
        self.moe = Moe(dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.mix(self.embed(ids))
        return self.head(self.moe(x))


model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(3):
    ids = torch.randint(0, 32, (4, 9))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 3))
