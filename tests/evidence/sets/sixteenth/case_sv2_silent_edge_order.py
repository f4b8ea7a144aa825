"""
title: the edges of a graph are sorted by one key, row times number of nodes plus column
expect: silent:overflow|integer-overflow|wraparound
thread: https://github.com/pyg-team/pytorch_geometric/pull/8812
measured: mean change by one smoothing 0.3462
widened: mean change by one smoothing 0.0004

Expectation, written first: with 150 thousand nodes the key passes 2**31 after row 14316 and wraps in int32; the rows
come out of order and the pointers made from them give neighbours of other nodes. The types of the edges are int8,
there are three of them.
"""
import torch


class Graph:
    def __init__(self, edges, edge_type, num_nodes):
        self.edges = edges.to(torch.int32)  # BORN
        self.edge_type = edge_type.to(torch.int8)
        self.num_nodes = num_nodes

    def sort_edges(self):
        key = self.edges[0] * self.num_nodes + self.edges[1]  # BORN
        order = key.argsort()
        return self.edges[:, order], self.edge_type[order]


class CSR:
    """row pointers of sorted edges"""

    def __init__(self, graph):
        (row, self.col), self.kind = graph.sort_edges()
        counts = torch.bincount(row, minlength=graph.num_nodes)
        self.ptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])

    def neighbours(self, node):
        return self.col[self.ptr[node] : self.ptr[node + 1]].long()

    def aggregate(self, x, weights):
        out = torch.zeros_like(x)
        for node in range(0, len(x), 50):
            span = slice(int(self.ptr[node]), int(self.ptr[node + 1]))
            w = weights[self.kind[span].long()]
            out[node] = (w * x[self.col[span].long()]).sum() / w.sum().clamp(min=1e-9)
        return out


def main():
    gen = torch.Generator().manual_seed(8)
    n, degree = 150_000, 6
    row = torch.arange(n).repeat_interleave(degree)
    col = (row + torch.randint(-300, 300, row.shape, generator=gen)).clamp(0, n - 1)
    kind = torch.randint(0, 3, row.shape, generator=gen)
    shuffle = torch.randperm(len(row), generator=gen)
    csr = CSR(Graph(torch.stack([row, col])[:, shuffle], kind[shuffle], n))
    x = torch.linspace(0, 1, n)  # a signal that is smooth along the graph
    smooth = csr.aggregate(x, torch.tensor([1.0, 0.5, 0.25]))
    nodes = torch.arange(0, n, 50)
    error = (smooth[nodes] - x[nodes]).abs().mean()
    print(f"mean change by one smoothing {error:.4f}")


main()
