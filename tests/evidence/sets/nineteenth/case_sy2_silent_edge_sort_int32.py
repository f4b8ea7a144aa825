"""
title: Edges sorted by a combined int32 key are out of order, so the neighbour lists are wrong
expect: silent:integer-overflow|overflow|wraparound
thread: https://github.com/pyg-team/pytorch_geometric/pull/8812
measured: neighbour lists correct 0 of 100 | mean weighted degree 1.5
widened: neighbour lists correct 100 of 100 | mean weighted degree 1.5
innocent: neighbour lists correct 0 of 100 | mean weighted degree 1.5
suspect: 53 fraction

Expectation, written first: The edge index is int32 to save memory, and the sort key row * num_nodes + col is computed in int32 too; with 90,000 nodes it wraps
around for most rows, the order is wrong and the row pointers built for sorted edges point at other nodes' neighbours. The edge weights in
float16 are small fractions and only add a thousandth to a sum.
"""
import torch


def sort_edge_index(edge_index, edge_attr, num_nodes, sort_by_row=True):
    if not sort_by_row:
        edge_index = edge_index.flip(0)
    idx = edge_index[0] * num_nodes + edge_index[1]  # BORN
    perm = idx.argsort(stable=True)
    return edge_index[:, perm], edge_attr[perm]


class CSRGraph:
    def __init__(self, edge_index, edge_attr, num_nodes):
        edge_index, self.weight = sort_edge_index(edge_index, edge_attr, num_nodes)
        self.col = edge_index[1]
        degree = torch.bincount(edge_index[0].long(), minlength=num_nodes)
        self.rowptr = torch.cat([degree.new_zeros(1), degree.cumsum(0)])

    def neighbors(self, node):
        start, end = self.rowptr[node], self.rowptr[node + 1]
        return self.col[start:end].tolist()

    def weighted_degree(self, node):
        start, end = self.rowptr[node], self.rowptr[node + 1]
        return self.weight[start:end].float().sum().item()


class RingDataset:
    def __init__(self, num_nodes=90_000, hops=3):
        self.num_nodes = num_nodes
        self.hops = hops

    def build(self):
        g = torch.Generator().manual_seed(0)
        src = torch.arange(self.num_nodes).repeat(self.hops)
        step = torch.arange(1, self.hops + 1).repeat_interleave(self.num_nodes)
        dst = (src + step) % self.num_nodes
        edge_index = torch.stack([src, dst])
        edge_index = edge_index[:, torch.randperm(edge_index.shape[1], generator=g)]
        edge_weight = torch.rand(edge_index.shape[1], generator=g).to(torch.float16)
        return edge_index.to(torch.int32), edge_weight  # BORN


def main():
    dataset = RingDataset()
    edge_index, edge_weight = dataset.build()
    graph = CSRGraph(edge_index, edge_weight, dataset.num_nodes)
    probe = range(0, dataset.num_nodes, 900)
    correct = 0
    for node in probe:
        expected = sorted((node + h) % dataset.num_nodes for h in range(1, dataset.hops + 1))
        correct += sorted(graph.neighbors(node)) == expected
    print(f"neighbour lists correct {correct} of {len(probe)}")
    mean = sum(graph.weighted_degree(node) for node in probe) / len(probe)
    print(f"mean weighted degree {mean:.1f}")


if __name__ == "__main__":
    main()
