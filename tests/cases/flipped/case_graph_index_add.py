"""
title: messages in half gathered into a tensor of the default dtype
expect: collision

The edge weights are half now, as features and layers are. It is the tensor which the messages are added to that was
made with a shape and without a dtype.
"""
import torch
from torch import nn


class Graph:
    def __init__(self, nodes, edges):
        self.nodes = nodes
        self.source, self.target = torch.tensor(edges).t()

    def edge_weight(self):
        degree = torch.bincount(self.target, minlength=self.nodes).clamp(min=1)
        scale = degree.half() ** -0.5
        return scale[self.source] * scale[self.target]


class GraphConv(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.linear = nn.Linear(inside, outside)

    def forward(self, x, graph):
        x = self.linear(x)
        messages = x[graph.source] * graph.edge_weight().unsqueeze(1)
        gathered = torch.zeros(x.shape)  # BORN
        gathered.index_add_(0, graph.target, messages)  # COLLIDES
        return torch.relu(gathered)


torch.manual_seed(0)
graph = Graph(5, [(0, 1), (1, 2), (2, 0), (3, 1), (4, 0), (2, 3)])
first, second = GraphConv(6, 8).half(), GraphConv(8, 3).half()
hidden = first(torch.randn(5, 6).half(), graph)
print(second(hidden, graph).shape)
