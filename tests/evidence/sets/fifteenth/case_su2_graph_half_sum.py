"""
title: messages on a citation graph are added up in the half precision of the node features
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/dmlc/dgl/issues/4674
measured: hub accuracy 60.0%, largest sum 2048
widened: hub accuracy 100.0%, largest sum 4883

Expectation, written first: a paper with thousands of citations sums values around one half, and at 2048 the sum
no longer grows; hubs look alike and cannot be classified. The features themselves, stored in float16, are off
by a few in ten thousand, which no sum of thousands shows.
"""
import torch
from torch import nn


class CitationGraph:
    """a few hubs that are cited thousands of times, by topics that decide their class"""

    def __init__(self, hubs, papers, seed):
        gen = torch.Generator().manual_seed(seed)
        self.cites = torch.randint(7000, 13000, (hubs,), generator=gen)
        self.label = torch.arange(hubs) % 2
        self.src, self.dst, self.kind = [], [], []
        bias = torch.where(torch.arange(papers) % 2 == 0, 0.0, 1.0)
        for h in range(hubs):
            prob = 0.35 + 0.3 * (bias == self.label[h]).float()
            pick = torch.multinomial(prob, int(self.cites[h]), replacement=True, generator=gen)
            self.src.append(pick)
            self.dst.append(torch.full_like(pick, h))
        self.src, self.dst = torch.cat(self.src), torch.cat(self.dst)
        self.kind = torch.zeros(len(self.src), dtype=torch.int8)
        base = torch.stack([1 - bias, bias], dim=1)
        self.feature = (base + 0.2 * torch.rand(papers, 2, generator=gen)).to(torch.float16)
        self.hubs = hubs
        self.start = self.cites.cumsum(0) - self.cites


class SumConv(nn.Module):
    def __init__(self, dtype=torch.float16):  # BORN
        super().__init__()
        self.dtype = dtype
        self.register_buffer("edge_weight", torch.tensor([0.5]))

    def forward(self, graph):
        message = graph.feature[graph.src].float() * self.edge_weight[graph.kind.long()][:, None]
        out = torch.zeros(graph.hubs, message.shape[1], dtype=self.dtype)  # BORN
        rank = torch.arange(len(graph.dst)) - graph.start[graph.dst]
        for edges in torch.split(rank.argsort(stable=True), rank.bincount().tolist()):
            out[graph.dst[edges]] += message[edges].to(self.dtype)  # BORN
        return out


class HubClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = SumConv()
        self.head = nn.Linear(2, 2)

    def forward(self, graph):
        h = self.conv(graph).float()
        return self.head(h / h.mean())


def fit(model, graph, steps=200):
    optimizer = torch.optim.Adam(model.head.parameters(), lr=0.05)
    with torch.no_grad():
        h = model.conv(graph).float()
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model.head(h / h.mean()), graph.label).backward()
        optimizer.step()


def main():
    torch.manual_seed(0)
    model = HubClassifier()
    fit(model, CitationGraph(40, 400, seed=1))
    test = CitationGraph(40, 400, seed=2)
    with torch.no_grad():
        accuracy = (model(test).argmax(-1) == test.label).double().mean().item()
        largest = model.conv(test).max().item()
    print(f"hub accuracy {100 * accuracy:.1f}%, largest sum {largest:.0f}")


main()
