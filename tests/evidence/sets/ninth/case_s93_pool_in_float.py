"""
title: half graph network widens for the pooling and narrows again
expect: clean
thread: https://github.com/rusty1s/pytorch_scatter/issues/320
measured: relative error per graph: ['0.0011', '0.0015', '0.0018', '0.0016']

Expectation, written first: features are half before and after, sums and counts of the
20000 node graph are float32, so no count stops at 2048; the read-out agrees with
float64 to the half precision of its storage.
"""
import torch
from torch import nn


def scatter_mean(h, batch, size):
    total = torch.zeros(size, h.shape[1], dtype=h.dtype).index_add_(0, batch, h)
    count = torch.zeros(size, dtype=h.dtype).index_add_(0, batch, torch.ones(len(batch), dtype=h.dtype))
    return total / count.clamp(min=1)[:, None]


class GraphEncoder(nn.Module):
    def __init__(self, dim=16, pool_dtype=torch.float32):
        super().__init__()
        self.lin1 = nn.Linear(dim, 32)
        self.lin2 = nn.Linear(32, dim)
        self.out = nn.Linear(dim, 2)
        self.pool_dtype = pool_dtype

    def forward(self, x, batch, graphs):
        h = torch.relu(self.lin1(x))
        h = self.lin2(h)
        pooled = scatter_mean(h.to(self.pool_dtype), batch, graphs)
        return self.out(pooled.to(x.dtype))


def dataset(seed=0):
    gen = torch.Generator().manual_seed(seed)
    sizes = [20000, 50, 300, 4000]
    batch = torch.repeat_interleave(torch.arange(4), torch.tensor(sizes))
    x = torch.rand(len(batch), 16, generator=gen) + batch[:, None] * 0.1
    order = torch.randperm(len(batch), generator=gen)
    return x[order], batch[order]


@torch.no_grad()
def main():
    torch.manual_seed(0)
    model = GraphEncoder()
    x, batch = dataset()
    model.pool_dtype = torch.float64
    want = model.double()(x.double(), batch, 4)
    model.pool_dtype = torch.float32
    got = model.half()(x.half(), batch, 4).double()
    err = ((got - want).norm(dim=1) / want.norm(dim=1)).tolist()
    print("relative error per graph:", ["%.4f" % e for e in err])


main()
