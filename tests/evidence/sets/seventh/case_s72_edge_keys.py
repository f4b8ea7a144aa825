"""
title: Duplicate edges are removed by a row * N + column key in int32
expect: silent:overflow|wraparound|integer-overflow|downcast
thread: https://github.com/pyg-team/pytorch_geometric/pull/8812
measured: edges kept = 149998 (true 150000), of which in the graph 22253
widened: edges kept = 150000 (true 150000), of which in the graph 150000

Expectation, written first.  Node ids are stored as int32, which is enough for
120000 nodes.  The key row * N + column goes up to 1.44e10, wraps modulo 2^32,
and different edges share a key: unique() throws real edges away and the edges
decoded from the keys are not edges of the graph.  BORN is the line that makes
the edge index int32 (the key follows it); int64 mends it.
"""
import torch

torch.manual_seed(0)
NUM_NODES = 120_000


def citation_log(n_edges=150_000, repeats=30_000):
    g = torch.Generator().manual_seed(11)
    src = torch.randint(0, NUM_NODES, (n_edges,), generator=g)
    dst = (src + torch.randint(1, NUM_NODES, (n_edges,), generator=g)) % NUM_NODES
    again = torch.randint(0, n_edges, (repeats,), generator=g)
    return torch.stack([torch.cat([src, src[again]]), torch.cat([dst, dst[again]])])


class Graph:
    def __init__(self, edge_index, num_nodes):
        self.edge_index = edge_index.to(torch.int32)  # BORN
        self.num_nodes = num_nodes

    def coalesce(self):
        row, col = self.edge_index
        key = row * self.num_nodes + col
        key = torch.unique(key)
        row = torch.div(key, self.num_nodes, rounding_mode="floor")
        self.edge_index = torch.stack([row, key - row * self.num_nodes])
        return self

    def in_degree(self):
        return torch.bincount(self.edge_index[1].long(), minlength=self.num_nodes)


def truth(edge_index):
    return set(map(tuple, edge_index.T.tolist()))


def main():
    raw = citation_log()
    wanted = truth(raw)
    graph = Graph(raw, NUM_NODES).coalesce()
    got = truth(graph.edge_index)
    print("highest in-degree:", graph.in_degree().max().item())
    print(f"edges kept = {len(got)} (true {len(wanted)}), of which in the graph {len(got & wanted)}")


if __name__ == "__main__":
    main()
