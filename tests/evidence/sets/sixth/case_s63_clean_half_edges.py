"""
title: edge lists are int16 and edge weights bfloat16 in storage, messages are summed in float32
expect: clean

After https://github.com/pyg-team/pytorch_geometric/pull/8812 and https://github.com/dmlc/dgl/issues/7850.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(808)


class Graph:
    """Two communities; at most 32767 nodes, which is checked."""

    def __init__(self, nodes=1200, degree=8):
        assert nodes <= torch.iinfo(torch.int16).max
        self.label = torch.arange(nodes) % 2
        source = torch.arange(nodes).repeat_interleave(degree)
        same = torch.rand(len(source)) < 0.8
        target = torch.randint(0, nodes // 2, (len(source),)) * 2 + (source % 2 ^ (~same).long())
        self.edges = torch.stack([source, target]).to(torch.int16)
        self.weight = (0.5 + torch.rand(len(source))).to(torch.bfloat16)
        self.x = (torch.randn(nodes, 8) + 0.3 * self.label[:, None]).to(torch.bfloat16)


def gather_sum(x, edges, weight):
    source, target = edges.long()
    message = x[source].float() * weight.float()[:, None]
    total = torch.zeros(len(x), x.shape[1]).index_add_(0, target, message)
    norm = torch.zeros(len(x)).index_add_(0, target, weight.float()).clamp(min=1)
    return (total / norm[:, None]).to(x.dtype)


class Net(nn.Module):
    def __init__(self, features=8, dim=32):
        super().__init__()
        self.first, self.second, self.out = nn.Linear(features, dim), nn.Linear(2 * dim, dim), nn.Linear(2 * dim, 2)

    def forward(self, x, edges, weight):
        x = F.relu(self.first(x))
        x = F.relu(self.second(torch.cat([x, gather_sum(x, edges, weight)], dim=1)))
        return self.out(torch.cat([x, gather_sum(x, edges, weight)], dim=1))


graph, model = Graph(), Net()
train = torch.rand(1200) < 0.3
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(60):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(graph.x, graph.edges, graph.weight)
    loss = F.cross_entropy(logits.float()[train], graph.label[train])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    logits = model(graph.x.float(), graph.edges, graph.weight)
print("accuracy", round((logits.argmax(-1) == graph.label)[~train].float().mean().item(), 3))
