"""
title: neighbours are averaged by degrees below two hundred, counted in bfloat16, over indicator features in bfloat16
expect: clean
"""
import torch

torch.manual_seed(952)


class Graph:
    def __init__(self, nodes=500, edges=6000):
        self.nodes = nodes
        self.source, self.target = torch.randint(0, nodes, (2, edges))
        self.kind = torch.randint(0, 4, (nodes,))


def average(graph):
    x = torch.nn.functional.one_hot(graph.kind, 4).bfloat16().float()
    ones = torch.ones(len(graph.target), dtype=torch.bfloat16)
    degree = torch.zeros(graph.nodes, dtype=torch.bfloat16).index_add_(0, graph.target, ones)
    total = torch.zeros(graph.nodes, 4).index_add_(0, graph.target, x[graph.source])
    return total / degree.float().clamp(min=1)[:, None], degree


share, degree = average(Graph())
linked = degree > 0
print("largest degree", int(degree.max()), "shares sum to", round(share[linked].sum(1).min().item(), 4), round(share[linked].sum(1).max().item(), 4))
