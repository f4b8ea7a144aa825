"""
title: the normalisation of a graph convolution is prepared in numpy, its float64 spreads to the messages
expect: collision
fix_at: 20, 21, 33, 59

After https://github.com/flairNLP/flair/pull/3651 (scatter_add: self and src of one dtype) and the gcn_norm of
https://github.com/pyg-team/pytorch_geometric/pull/8740.
Right: bring the coefficients to the features' dtype.
"""
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(9)


def gcn_norm(edges, nodes):
    degree = np.bincount(edges[1].numpy(), minlength=nodes)
    inverse = 1.0 / np.sqrt(np.maximum(degree, 1))
    coefficient = inverse[edges[0].numpy()] * inverse[edges[1].numpy()]
    return torch.from_numpy(coefficient)  # BORN


class GraphConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x, edges, norm):
        x = self.linear(x)
        messages = x[edges[0]] * norm[:, None]
        out = torch.zeros_like(x)
        target = edges[1][:, None].expand_as(messages)
        out.scatter_add_(0, target, messages)  # COLLIDES
        return out + self.bias


class Net(nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        self.first, self.second = GraphConv(inputs, hidden), GraphConv(hidden, classes)

    def forward(self, x, edges, norm):
        x = F.dropout(F.relu(self.first(x, edges, norm)), 0.2, self.training)
        return self.second(x, edges, norm)


def cora_like(nodes=60, features=12, classes=4):
    y = torch.randint(0, classes, (nodes,))
    x = F.one_hot(y, features).float() + 0.5 * torch.randn(nodes, features)
    edges = torch.randint(0, nodes, (2, 240))
    loops = torch.arange(nodes).expand(2, -1)
    return x, y, torch.cat([edges, edges.flip(0), loops], dim=1)


x, y, edges = cora_like()
norm = gcn_norm(edges, len(x))
model = Net(12, 16, 4)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
for epoch in range(5):
    loss = F.cross_entropy(model(x, edges, norm), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, round(loss.item(), 3))
