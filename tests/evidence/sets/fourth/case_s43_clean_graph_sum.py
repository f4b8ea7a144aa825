"""
title: a graph net with bfloat16 linears, messages widened before they are summed, degrees counted in int64
expect: clean

The right way round of https://github.com/pyg-team/pytorch_geometric/pull/8740 and https://github.com/flairNLP/flair/pull/3651.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(47)


class MeanConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own, self.near = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)

    def forward(self, x, edges, degree):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            own, message = self.own(x), self.near(x)
        total = torch.zeros(len(x), message.shape[1])
        total.index_add_(0, edges[1], message[edges[0]].float())
        return own.float() + total / degree.clamp(min=1)[:, None]


class Net(nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        self.first, self.second = MeanConv(inputs, hidden), MeanConv(hidden, classes)
        self.norm = nn.BatchNorm1d(hidden)

    def forward(self, x, edges, degree):
        return self.second(F.relu(self.norm(self.first(x, edges, degree))), edges, degree)


def graph(nodes=300, classes=4, links=1500):
    label = torch.randint(0, classes, (nodes,))
    a, b = torch.randint(0, nodes, (2, links))
    same = (label[a] == label[b]) | (torch.rand(links) < 0.2)
    edges = torch.stack([torch.cat([a[same], b[same]]), torch.cat([b[same], a[same]])])
    key = torch.unique(edges[0] * nodes + edges[1])
    edges = torch.stack([key // nodes, key % nodes])
    x = F.one_hot(label, 8).float() + torch.randn(nodes, 8)
    return x, label, edges


x, label, edges = graph()
degree = torch.bincount(edges[1], minlength=len(x))
train = torch.rand(len(x)) < 0.5
model = Net(8, 32, 4)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(20):
    logits = model(x, edges, degree)
    loss = F.cross_entropy(logits[train], label[train])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
right = (model(x, edges, degree).argmax(-1) == label)[~train].float().mean()
print("loss", round(loss.item(), 3), "accuracy", round(right.item(), 3))
