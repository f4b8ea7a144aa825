"""
title: edge lengths from the legacy tensor constructor widen half messages
expect: collision
fix_at: 38

torch.Tensor([...]) is float32 by definition. The lengths weight the messages that scatter_add_ is to add to a half
result.
"""
import math
from collections import namedtuple

import torch
from torch import nn

Graph = namedtuple("Graph", "source target length")


def ring(count, radius=1.0):
    spots = [(radius * math.cos(2 * math.pi * i / count), radius * math.sin(2 * math.pi * i / count)) for i in range(count)]
    edges = [(i, (i + hop) % count) for i in range(count) for hop in (1, 2)]
    length = torch.Tensor([math.dist(spots[a], spots[b]) for a, b in edges])  # BORN
    source, target = torch.tensor(edges).unbind(dim=1)
    return Graph(source, target, length)


class MessagePassing(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.message = nn.Linear(2 * width, width)
        self.update = nn.GRUCell(width, width)

    def gather(self, messages, target, count):
        where = target.unsqueeze(-1).expand_as(messages)
        return messages.new_zeros(count, messages.shape[-1], dtype=self.message.weight.dtype).scatter_add_(0, where, messages)  # COLLIDES

    def forward(self, x, graph):
        ends = torch.cat([x[graph.source], x[graph.target]], dim=-1)
        messages = torch.relu(self.message(ends)) * torch.exp(-graph.length).unsqueeze(-1)
        return self.update(self.gather(messages, graph.target, len(x)), x)


torch.manual_seed(0)
network = MessagePassing(6).half()
x = torch.randn(7, 6).half()
graph = ring(7)
with torch.no_grad():
    for _ in range(2):
        x = network(x, graph)
print(x.dtype)
