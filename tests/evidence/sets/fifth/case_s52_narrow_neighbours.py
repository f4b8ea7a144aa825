"""
title: a neighbour table is kept in int16 to save memory, nodes above 32767 become others counted from the end
expect: silent:overflow|downcast|round-trip
fix_at: 31

After https://github.com/dmlc/dgl/issues/7850 and https://github.com/pyg-team/pytorch_geometric/pull/8812.
Right: int32 (or int64) ids.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(218)


class Graph:
    def __init__(self, nodes=40000, degree=6, groups=8):
        self.group = torch.randint(0, groups, (nodes,))
        order = self.group.argsort()
        place = torch.empty_like(order)
        place[order] = torch.arange(nodes)
        near = (place[:, None] + torch.randint(-40, 41, (nodes, degree))).clamp(0, nodes - 1)
        self.table = self.compact(order[near])
        self.features = F.one_hot(self.group, groups).float() + 1.2 * torch.randn(nodes, groups)

    @staticmethod
    def compact(table):
        return table.to(torch.int16)  # BORN

    def neighbours(self, rows):
        return self.features[self.table[rows].long()]


class Sage(nn.Module):
    def __init__(self, dim=8, hidden=32, groups=8):
        super().__init__()
        self.own, self.other = nn.Linear(dim, hidden), nn.Linear(dim, hidden)
        self.out = nn.Linear(hidden, groups)

    def forward(self, own, others):
        return self.out(F.relu(self.own(own) + self.other(others.mean(1))))


graph, model = Graph(), Sage()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(120):
    rows = torch.randint(0, len(graph.group), (512,))
    loss = F.cross_entropy(model(graph.features[rows], graph.neighbours(rows)), graph.group[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
rows = torch.arange(0, len(graph.group), 10)
with torch.no_grad():
    right = (model(graph.features[rows], graph.neighbours(rows)).argmax(-1) == graph.group[rows]).float().mean().item()
print("loss", round(loss.item(), 3), "accuracy", round(right, 3))
