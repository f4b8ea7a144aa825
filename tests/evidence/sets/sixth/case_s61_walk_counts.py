"""
title: the next node of a random walk is drawn by how often an edge was seen, the counts are integers
expect: collision
fix_at: 28

After https://github.com/pytorch/pytorch/issues/3364 and https://github.com/numpy/numpy/issues/8317 (what multinomial takes and gives).
Right: the counts become float32 where they are used as weights.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(608)


class Graph:
    """Clicks from page to page: how often each pair was seen."""

    def __init__(self, nodes):
        self.nodes = nodes
        self.pairs = []

    def add(self, source, target):
        self.pairs.append(source * self.nodes + target)

    def matrix(self):
        counts = torch.bincount(torch.cat(self.pairs), minlength=self.nodes * self.nodes)  # BORN
        return counts.view(self.nodes, self.nodes)


class Walker:
    def __init__(self, counts, floor=1):
        self.counts = counts + floor * torch.eye(len(counts), dtype=counts.dtype)

    def step(self, nodes):
        rows = self.counts[nodes]
        return torch.multinomial(rows, 1)[:, 0]  # COLLIDES

    def walk(self, starts, length):
        path = [starts]
        for _ in range(length):
            path.append(self.step(path[-1]))
        return torch.stack(path, dim=1)


class SkipGram(nn.Module):
    def __init__(self, nodes, dim=16):
        super().__init__()
        self.inner, self.outer = nn.Embedding(nodes, dim), nn.Embedding(nodes, dim)
        nn.init.zeros_(self.outer.weight)

    def forward(self, centre, context):
        return F.cross_entropy(self.inner(centre) @ self.outer.weight.t(), context)


def clicks(nodes, count):
    source = torch.randint(0, nodes, (count,))
    return source, (source + torch.randint(1, 4, (count,))) % nodes


graph = Graph(40)
for day in range(5):
    graph.add(*clicks(40, 300))
walker, model = Walker(graph.matrix()), SkipGram(40)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-2)
for epoch in range(10):
    paths = walker.walk(torch.arange(40), 8)
    loss = model(paths[:, :-1].flatten(), paths[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", round(loss.item(), 3))
