"""
title: counting weighted votes of neighbours in a large graph
expect: silent:overflow|precision-loss|downcast
thread: https://github.com/pyg-team/pytorch_geometric/issues/9886
measured: votes at the hubs [[32512, 10579], [11409, -31130]] winners [0, 0]
widened: votes at the hubs [[98048, 10579], [11409, 99942]] winners [0, 1]

Expectation, written first: the vote weights are int16 and are summed in int16; hubs
collect more than 32767 and wrap to negative totals, so they get the wrong label. BORN is the
cast of the weights to int16; int64 gives the right totals. The half features are fine.
"""
import torch
from torch import nn


class HubGraph:
    """A few hubs with thousands of neighbours."""

    def __init__(self, nodes, hubs, seed):
        gen = torch.Generator().manual_seed(seed)
        self.nodes, self.hubs = nodes, hubs
        self.label = torch.randint(0, 2, (nodes,), generator=gen)
        src = torch.arange(hubs, nodes)
        dst = torch.where(torch.rand(len(src), generator=gen) < 0.9,
                          self.label[src], 1 - self.label[src]) % hubs
        self.edge = torch.stack([src, dst])
        self.feature = torch.rand(nodes, 4, generator=gen)


class Confidence(nn.Module):
    def forward(self, feature):
        score = feature.half().mean(1)
        return (score.float() * 20).round() + 1


class VoteLayer:
    def __init__(self, confidence):
        self.confidence = confidence

    def __call__(self, graph):
        weight = self.confidence(graph.feature).to(torch.int16)  # BORN
        src, dst = graph.edge
        totals = torch.zeros(graph.nodes, 2, dtype=weight.dtype)
        flat = dst * 2 + graph.label[src]
        totals.view(-1).scatter_add_(0, flat, weight[src])
        return totals


def main():
    graph = HubGraph(nodes=20000, hubs=2, seed=0)
    totals = VoteLayer(Confidence())(graph)
    winners = totals[: graph.hubs].argmax(1).tolist()
    print("votes at the hubs", totals[: graph.hubs].tolist(), "winners", winners)


if __name__ == "__main__":
    main()
