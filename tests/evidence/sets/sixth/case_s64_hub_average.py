"""
title: neighbours of hubs are averaged by degrees summed in bfloat16; their indicator features may be bfloat16
expect: silent:lost-update|precision-loss|downcast
"""
import torch

torch.manual_seed(904)


class Graph:
    """A few hubs with a thousand neighbours, many small nodes."""

    def __init__(self, nodes=3000, hubs=5):
        self.nodes = nodes
        small = torch.randint(hubs, nodes, (9000,))
        hub = torch.arange(hubs).repeat_interleave(1000)
        self.source = torch.cat([small, torch.randint(hubs, nodes, (len(hub),))])
        self.target = torch.cat([torch.randint(hubs, nodes, (len(small),)), hub])
        self.kind = torch.randint(0, 4, (nodes,))


def average(graph):
    """Share of each kind among the neighbours."""
    x = torch.nn.functional.one_hot(graph.kind, 4).float()
    x = x.bfloat16().float()
    ones = torch.ones(len(graph.target))
    degree = torch.zeros(graph.nodes, dtype=torch.bfloat16)  # BORN
    degree.index_add_(0, graph.target, ones.to(degree.dtype))
    total = torch.zeros(graph.nodes, 4).index_add_(0, graph.target, x[graph.source])
    return total / degree.float().clamp(min=1)[:, None]


graph = Graph()
share = average(graph)
print("shares of a hub sum to", round(share[:5].sum(1).mean().item(), 3), "of a small node", round(share[5:].sum(1).max().item(), 3))
