"""
title: the per-type linear layer of a heterogeneous graph writes its rows into a float32 output under autocast
expect: collision
thread: https://github.com/pyg-team/pytorch_geometric/pull/7473
fix_at: 22, 26, 27

Expectation, written first: autocast gives the rows of one node type back in bfloat16, the output was allocated
from the float32 features; the masked write does not convert.
"""
import torch
import torch.nn.functional as F
from torch import nn


class TypedLinear(nn.Module):
    def __init__(self, in_channels, out_channels, num_types):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_types, out_channels, in_channels) * in_channels ** -0.5)
        self.bias = nn.Parameter(torch.zeros(num_types, out_channels))

    def forward(self, x, node_type):
        out = x.new_empty(len(x), self.weight.shape[1])
        for i in range(len(self.weight)):
            mask = node_type == i
            if mask.any():
                rows = F.linear(x[mask], self.weight[i], self.bias[i])  # BORN
                out[mask] = rows  # COLLIDES
        return out


class RelationNet(nn.Module):
    def __init__(self, features=10, hidden=16, types=3, classes=4):
        super().__init__()
        self.lift = TypedLinear(features, hidden, types)
        self.readout = nn.Linear(hidden, classes)

    def forward(self, x, node_type, edge_index):
        h = self.lift(x, node_type).relu()
        src, dst = edge_index
        agg = torch.zeros_like(h).index_add_(0, dst, h[src])
        return self.readout(h + agg)


class Engine:
    def __init__(self, model, lr=1e-2, precision="bf16-mixed"):
        self.model = model
        self.opt = torch.optim.Adam(model.parameters(), lr)
        self.enabled = precision.endswith("mixed")

    def step(self, x, node_type, edge_index, y):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.enabled):
            loss = F.cross_entropy(self.model(x, node_type, edge_index).float(), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


def synthetic(nodes=60, edges=200, seed=0):
    gen = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, 10, generator=gen)
    node_type = torch.randint(0, 3, (nodes,), generator=gen)
    edge_index = torch.randint(0, nodes, (2, edges), generator=gen)
    y = (x[:, 0] > 0).long() + 2 * (node_type == 1).long()
    return x, node_type, edge_index, y


if __name__ == "__main__":
    torch.manual_seed(0)
    engine = Engine(RelationNet())
    data = synthetic()
    for epoch in range(5):
        loss = engine.step(*data)
    print(f"loss {loss:.3f}")
