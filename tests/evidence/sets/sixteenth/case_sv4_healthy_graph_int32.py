"""
title: a graph is kept with int32 node and edge numbers because it has few enough of them
expect: clean
thread: https://github.com/dmlc/dgl/pull/7127
measured: nodes labelled rightly 95.86%, last pointer 160000

Expectation, written first: node numbers, edge numbers and row pointers all stay below two hundred thousand and no
product of them is taken; int64 gives the same samples and the same embedding.
"""
import torch


class FusedCSC:
    def __init__(self, src, dst, num_nodes):
        order = dst.argsort(stable=True)
        counts = torch.bincount(dst, minlength=num_nodes)
        self.indices = src[order].to(torch.int32)
        self.indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(torch.int32)
        self.num_nodes = num_nodes

    def sample(self, seeds, fanout, gen):
        """with replacement, nodes without an incoming edge look at themselves"""
        begin, end = self.indptr[seeds], self.indptr[seeds + 1]
        degree = (end - begin).clamp(min=1)
        u = torch.rand(len(seeds), fanout, generator=gen)
        pick = begin[:, None] + (u * degree[:, None]).to(self.indptr.dtype)
        found = self.indices[pick.clamp(max=len(self.indices) - 1).long()]
        return torch.where((end > begin)[:, None], found, seeds[:, None].to(found.dtype))


class Propagate:
    def __init__(self, graph, fanout, gen):
        self.graph, self.fanout, self.gen = graph, fanout, gen

    def __call__(self, x):
        out = torch.empty_like(x)
        for seeds in torch.arange(self.graph.num_nodes).split(4096):
            near = self.graph.sample(seeds, self.fanout, self.gen)
            out[seeds] = 0.5 * x[seeds] + 0.5 * x[near.long()].mean(1)
        return out


def communities(n, edges, gen):
    src = torch.randint(0, n, (edges,), generator=gen)
    inside = torch.rand(edges, generator=gen) < 0.9
    other = torch.randint(0, n // 4, (edges,), generator=gen) * 4
    dst = torch.where(inside, other + src % 4, torch.randint(0, n, (edges,), generator=gen))
    return src, dst


def main():
    gen = torch.Generator().manual_seed(1)
    n = 20_000
    graph = FusedCSC(*communities(n, 160_000, gen), n)
    spread = Propagate(graph, fanout=8, gen=gen)
    x = torch.zeros(n, 4)
    known = torch.randperm(n, generator=gen)[:2000]
    x[known, known % 4] = 1.0
    for _ in range(4):
        x = spread(x)
        x[known] = torch.nn.functional.one_hot(known % 4, 4).float()
    right = x.argmax(-1) == torch.arange(n) % 4
    print(f"nodes labelled rightly {100 * right.float().mean():.2f}%, last pointer {graph.indptr[-1].item()}")


main()
