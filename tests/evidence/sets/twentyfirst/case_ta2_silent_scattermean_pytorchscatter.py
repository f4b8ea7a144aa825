"""
title: mean pooling of large graphs is far off because sum and count are scattered in half precision
expect: silent:lost-update|precision-loss|overflow|downcast
thread: https://github.com/rusty1s/pytorch_scatter/issues/269
measured: graph means: 400 nodes 0.497, 6000 nodes 1.767, 15000 nodes 2.000
widened: graph means: 400 nodes 0.495, 6000 nodes 0.748, 15000 nodes 1.004 ; innocent: graph means: 400 nodes 0.496, 6000 nodes 1.770, 15000 nodes 2.000
suspect: 32 storage (node features are cached in bf16, an unbiased 0.4 per cent per node that averages out)

Expectation, written first: the readout adds sums and node counts into fp16 buffers; a count stops at 2048 and a sum stops growing
once an addend is under half its step, so graphs with more nodes than that get a mean that depends on where each of them got stuck.
The bf16 cache of the features is coarser per element, but its errors cancel in a mean over thousands of nodes.
"""
import torch
import torch.nn as nn


def scatter_sum(src, index, dim_size, dtype):
    out = torch.zeros(dim_size, dtype=dtype)  # BORN
    return out.index_add_(0, index, src.to(dtype))  # BORN


def scatter_mean(src, index, dim_size, dtype=None):
    dtype = dtype or src.dtype
    out = scatter_sum(src, index, dim_size, dtype)
    ones = torch.ones(index.numel())
    count = scatter_sum(ones, index, dim_size, dtype)
    return out / count.clamp(min=1)


class FeatureStore:
    def __init__(self, x, batch):
        self.x = x.to(torch.bfloat16)
        self.batch = batch

    def fetch(self):
        return self.x.float(), self.batch


class GlobalReadout(nn.Module):
    def __init__(self, amp_dtype):
        super().__init__()
        self.amp_dtype = amp_dtype
        self.gate = nn.Parameter(torch.ones(()))

    def forward(self, x, batch, num_graphs):
        h = x * self.gate
        pooled = scatter_mean(h, batch, num_graphs, dtype=self.amp_dtype)  # BORN
        return pooled.float()


def make_graphs(sizes):
    chunks, batch = [], []
    for i, n in enumerate(sizes):
        chunks.append(torch.rand(n) + 0.25 * i)
        batch.append(torch.full((n,), i, dtype=torch.long))
    return torch.cat(chunks), torch.cat(batch)


@torch.no_grad()
def main():
    torch.manual_seed(0)
    sizes = [400, 6000, 15000]
    x, batch = make_graphs(sizes)
    store = FeatureStore(x, batch)
    readout = GlobalReadout(amp_dtype=torch.float16)  # BORN
    feats, batch = store.fetch()
    pooled = readout(feats, batch, len(sizes))
    text = ", ".join(f"{n} nodes {row:.3f}" for n, row in zip(sizes, pooled))
    print(f"graph means: {text}")


if __name__ == "__main__":
    main()
