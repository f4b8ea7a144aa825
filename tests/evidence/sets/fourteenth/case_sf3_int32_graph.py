"""
title: a citation graph is stored and sampled with int32 indices
expect: clean
thread: https://github.com/pyg-team/pytorch_geometric/pull/5948
measured: accuracy 0.665 (int64 0.665), edges 18000, bytes 72000

Expectation, written first: nodes and edges are far below two thousand millions; int32 pointers and columns give the same
neighbours as int64 ones, and the model trained on them learns the same.
"""
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class CSC:
    colptr: torch.Tensor
    row: torch.Tensor

    @classmethod
    def from_edges(cls, edge_index, nodes, dtype):
        source, target = edge_index
        order = target.argsort(stable=True)
        counts = torch.bincount(target, minlength=nodes)
        colptr = torch.cat((counts.new_zeros(1), counts.cumsum(0)))
        return cls(colptr.to(dtype), source[order].to(dtype))


class NeighborSampler:
    def __init__(self, graph, fanout, seed):
        self.graph, self.fanout = graph, fanout
        self.gen = torch.Generator().manual_seed(seed)

    def __call__(self, seeds):
        start = self.graph.colptr[seeds]
        degree = self.graph.colptr[seeds + 1] - start
        pick = torch.rand(len(seeds), self.fanout, generator=self.gen)
        offset = (pick * degree[:, None]).to(start.dtype)
        return torch.index_select(self.graph.row, 0, (start[:, None] + offset).flatten()).view(-1, self.fanout)


class Sage(nn.Module):
    def __init__(self, features, width, classes):
        super().__init__()
        self.mine, self.theirs = nn.Linear(features, width), nn.Linear(features, width)
        self.out = nn.Linear(width, classes)

    def forward(self, x, around):
        return self.out(torch.relu(self.mine(x) + self.theirs(around.mean(1))))


def community_graph(nodes, classes, edges, gen):
    y = torch.randint(0, classes, (nodes,), generator=gen)
    order = y.argsort()
    target = torch.randint(0, nodes, (edges,), generator=gen)
    shift = torch.randint(-nodes // (3 * classes), nodes // (3 * classes) + 1, (edges,), generator=gen)
    place = order.argsort()
    source = order[(place[target] + shift).clamp(0, nodes - 1)]
    loops = torch.arange(nodes)
    edge_index = torch.stack((torch.cat((source, loops)), torch.cat((target, loops))))
    x = nn.functional.one_hot(y, classes).float() + 1.2 * torch.randn(nodes, classes, generator=gen)
    return edge_index, x, y


def run(edge_index, x, y, dtype):
    graph = CSC.from_edges(edge_index, len(x), dtype)
    sampler = NeighborSampler(graph, fanout=8, seed=3)
    torch.manual_seed(80)
    model = Sage(x.shape[1], 32, int(y.max()) + 1)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    gen = torch.Generator().manual_seed(4)
    for _ in range(60):
        seeds = torch.randint(0, len(x), (256,), generator=gen).to(dtype)
        loss = nn.functional.cross_entropy(model(x[seeds], x[sampler(seeds)]), y[seeds])
        opt.zero_grad()
        loss.backward()
        opt.step()
    everyone = torch.arange(len(x), dtype=dtype)
    right = (model(x, x[sampler(everyone)]).argmax(-1) == y).float().mean().item()
    return right, graph


def main():
    gen = torch.Generator().manual_seed(80)
    data = community_graph(2000, 5, 16000, gen)
    wide, _ = run(*data, torch.int64)
    narrow, graph = run(*data, torch.int32)
    print(f"accuracy {narrow:.3f} (int64 {wide:.3f}), edges {len(graph.row)}, bytes {graph.row.nbytes}")


main()
