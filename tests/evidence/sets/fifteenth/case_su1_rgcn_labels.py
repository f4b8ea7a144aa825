"""
title: the multi-label targets of a relational graph network are a matrix of integers
expect: collision
thread: https://github.com/yangji9181/HNE/issues/13
fix_at: 26, 27, 68, 74, 80

Expectation, written first: the loader builds the indicator matrix of the labels as int64; the supervised loss is a
binary cross entropy and finds Long where it expects Float.
"""
import torch
import torch.nn.functional as F
from torch import nn


def parse_labels(lines):
    """'node<TAB>3,5' -> ids and the set of classes"""
    for line in lines:
        node, classes = line.split("\t")
        yield int(node), [int(c) for c in classes.split(",")]


def load_supervised(lines, classes):
    nodes, rows = [], []
    for node, own in parse_labels(lines):
        nodes.append(node)
        rows.append([1 if c in own else 0 for c in range(classes)])  # BORN
    return torch.tensor(nodes), torch.tensor(rows)  # BORN


class Graph:
    def __init__(self, nodes, relations, edges, seed):
        gen = torch.Generator().manual_seed(seed)
        self.nodes, self.relations = nodes, relations
        self.src, self.dst = torch.randint(0, nodes, (2, edges), generator=gen)
        self.type = torch.randint(0, relations, (edges,), generator=gen)
        degree = torch.zeros(relations, nodes).index_put_((self.type, self.dst), torch.ones(edges), accumulate=True)
        self.norm = 1 / degree[self.type, self.dst].unsqueeze(1)


class RGCNLayer(nn.Module):
    def __init__(self, width, relations, bases=3):
        super().__init__()
        self.bases = nn.Parameter(torch.randn(bases, width, width) / width**0.5)
        self.mix = nn.Parameter(torch.randn(relations, bases) / bases)
        self.loop = nn.Linear(width, width)

    def forward(self, h, graph):
        weight = torch.einsum("rb,bio->rio", self.mix, self.bases)
        message = torch.einsum("ei,eio->eo", h[graph.src], weight[graph.type]) * graph.norm
        return self.loop(h).index_add(0, graph.dst, message)


class RGCN(nn.Module):
    def __init__(self, graph, classes, width=16):
        super().__init__()
        self.entity = nn.Embedding(graph.nodes, width)
        self.layers = nn.ModuleList(RGCNLayer(width, graph.relations) for _ in range(2))
        self.out = nn.Linear(width, classes)

    def forward(self, graph):
        h = self.entity.weight
        for layer in self.layers:
            h = F.relu(layer(h, graph))
        return self.out(h)

    def get_supervised_loss(self, embed, matched_labels, matched_index):
        predicted = torch.sigmoid(embed[matched_index])
        return F.binary_cross_entropy(predicted, matched_labels)  # COLLIDES


class Session:
    def __init__(self, graph, lines, classes):
        self.graph = graph
        self.index, self.labels = load_supervised(lines, classes)
        self.model = RGCN(graph, classes)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)

    def run(self, epochs):
        for _ in range(epochs):
            loss = self.model.get_supervised_loss(self.model(self.graph), self.labels, self.index)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    torch.manual_seed(1)
    lines = [f"{n}\t{n % 4},{(n * 3 + 1) % 4}" for n in range(0, 60, 3)]
    print(f"loss {Session(Graph(60, 4, 240, seed=2), lines, 4).run(15):.4f}")
