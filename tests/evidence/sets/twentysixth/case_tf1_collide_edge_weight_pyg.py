"""
title: float64 edge weights make the messages double, the aggregation buffer is float
expect: collision
thread: https://github.com/pyg-team/pytorch_geometric/issues/2557
fix_at: (none beside the marked)

Expectation, written first: The edge weights come from a weighted networkx-like edge list through NumPy, float64. The normalised
weights times the float32 features promote to double, index_add_ into a buffer made like x refuses Double into Float.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Data:
    def __init__(self, x, edge_index, edge_weight, y):
        self.x, self.edge_index, self.edge_weight, self.y = x, edge_index, edge_weight, y


def add_self_loops(edge_index, edge_weight, num_nodes):
    loop = torch.arange(num_nodes).repeat(2, 1)
    edge_index = torch.cat([edge_index, loop], dim=1)
    return edge_index, torch.cat([edge_weight, edge_weight.new_ones(num_nodes)])


def gcn_norm(edge_index, edge_weight, num_nodes):
    edge_index, edge_weight = add_self_loops(edge_index, edge_weight, num_nodes)
    row, col = edge_index
    deg = edge_weight.new_zeros(num_nodes).index_add_(0, col, edge_weight)
    deg_inv_sqrt = deg.pow(-0.5)
    return edge_index, deg_inv_sqrt[row] * edge_weight * deg_inv_sqrt[col]


class GCNConv(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def message(self, x_j, edge_weight):
        return edge_weight.view(-1, 1) * x_j  # BORN

    def forward(self, x, edge_index, edge_weight):
        edge_index, norm = gcn_norm(edge_index, edge_weight, x.size(0))
        x = self.lin(x)
        row, col = edge_index
        out = torch.zeros_like(x)
        out = out.index_add_(0, col, self.message(x[row], norm))  # BORN COLLIDES
        return out + self.bias


class PatientGCN(nn.Module):
    def __init__(self, num_features, hidden, num_classes):
        super().__init__()
        self.gcnconv = nn.ModuleList([GCNConv(num_features, hidden), GCNConv(hidden, hidden)])
        self.out = nn.Linear(hidden, num_classes)

    def forward(self, x, edge_index, edge_weight):
        for conv in self.gcnconv:
            x = F.relu(conv(x, edge_index, edge_weight))
        return self.out(x)


def load_interactome(rng, num_nodes, num_edges):
    pairs = rng.integers(0, num_nodes, (num_edges, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    scores = rng.integers(150, 1000, len(pairs)) / 1000.0  # BORN
    return pairs, scores


def build_data(num_nodes=30):
    rng = np.random.default_rng(2557)
    pairs, scores = load_interactome(rng, num_nodes, 80)
    edge_index = torch.from_numpy(np.concatenate([pairs, pairs[:, ::-1]])).t().contiguous()
    edge_weight = torch.from_numpy(np.concatenate([scores, scores]))  # BORN
    x = torch.from_numpy(rng.normal(size=(num_nodes, 6)).astype(np.float32))
    y = (x[:, 0] + x[:, 1] > 0).long()
    return Data(x, edge_index, edge_weight, y)


def train():
    torch.manual_seed(2557)
    data = build_data()
    model = PatientGCN(6, 12, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(5):
        outputs = model(data.x, data.edge_index, data.edge_weight)  # BORN
        loss = F.cross_entropy(outputs, data.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", round(loss.item(), 3))


if __name__ == "__main__":
    train()
