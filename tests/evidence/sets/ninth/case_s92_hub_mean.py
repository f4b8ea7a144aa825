"""
title: mean aggregation over a hub node with features and counts in half
expect: silent:lost-update|precision-loss
thread: https://github.com/dmlc/dgl/issues/4674
measured: aggregated over exact: hub 4.394, other nodes 1.000
widened: aggregated over exact: hub 1.000, other nodes 1.000
fix_at: 43

Expectation, written first: the hub has 9000 in-neighbours; counting them by adding half
ones stops at 2048, so the mean of the hub comes out several times too large while all
other nodes are fine.
"""
import torch


class Graph:
    def __init__(self, n, hub_degree, seed=0):
        gen = torch.Generator().manual_seed(seed)
        leaf_src = torch.randint(0, n, (4 * n,), generator=gen)
        leaf_dst = torch.randint(1, n, (4 * n,), generator=gen)
        hub_src = torch.randint(1, n, (hub_degree,), generator=gen)
        self.src = torch.cat([leaf_src, hub_src])
        self.dst = torch.cat([leaf_dst, torch.zeros(hub_degree, dtype=torch.long)])
        self.n = n


def in_degrees(graph, like):
    ones = torch.ones(graph.dst.numel(), dtype=like.dtype)
    return torch.zeros(graph.n, dtype=like.dtype).index_add_(0, graph.dst, ones)


def copy_u_sum(graph, feat):
    out = feat.new_zeros(graph.n, feat.shape[1])
    return out.index_add_(0, graph.dst, feat[graph.src])


class SAGELayer(torch.nn.Module):
    def __init__(self, eps=0.0):
        super().__init__()
        self.eps = eps

    def forward(self, graph, feat):
        degree = in_degrees(graph, feat).clamp(min=1)
        return self.eps * feat + copy_u_sum(graph, feat) / degree[:, None]


def degree_report(graph, out, feat):
    exact = torch.zeros(graph.n, feat.shape[1], dtype=torch.float64)
    exact.index_add_(0, graph.dst, feat.double()[graph.src])
    exact /= torch.bincount(graph.dst, minlength=graph.n).clamp(min=1)[:, None]
    keep = exact[1:].mean(1) > 0
    hub = out[0].double().mean() / exact[0].mean()
    leaf = (out[1:].double().mean(1)[keep] / exact[1:].mean(1)[keep]).mean()
    return hub.item(), leaf.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    graph = Graph(2000, 9000)
    feat = torch.rand(graph.n, 16)
    layer = SAGELayer()
    out = layer(graph, feat.to(torch.float16))  # BORN
    hub, leaf = degree_report(graph, out, feat)
    print(f"aggregated over exact: hub {hub:.3f}, other nodes {leaf:.3f}")
