"""
title: the values of the sparse feature are squeezed to int32, ids of the big table land in foreign rows
expect: silent:integer-overflow|wraparound|overflow|downcast
thread: https://github.com/meta-pytorch/torchrec/pull/1590
measured: ids read from a foreign row: 40% | score error rms 0.799, score spread 0.874
widened: ids read from a foreign row: 0% | score error rms 0.000, score spread 0.874
innocent: ids read from a foreign row: 40% | score error rms 0.799, score spread 0.874
suspect: line 28, bag lengths and their sum fit in int32 with ease

Expectation, written first: the 64-bit hashed ids are cast with .int() before the lookup, ids above 2^31 wrap around, and the modulo of
the wrapped number is another row. Almost half of the users read embeddings of others and the scores are wrong. Left as int64 all rows
are right. The lengths are cast to int32 in the line beside it and stay small.
"""
import torch
from torch import nn


class KeyedJaggedTensor:
    def __init__(self, keys, values, lengths):
        self.keys, self.values, self.lengths = keys, values, lengths

    def offsets(self):
        zero = torch.zeros(1, dtype=self.lengths.dtype)
        return torch.cat([zero, torch.cumsum(self.lengths, 0).to(self.lengths.dtype)])


def copy_to_device(kjt):
    lengths = kjt.lengths.int()
    values = kjt.values.int()  # BORN
    return KeyedJaggedTensor(kjt.keys, values, lengths)


class ShardedEmbeddingBag(nn.Module):
    """rows are spread round robin over the shards"""

    def __init__(self, rows, dim, shards):
        super().__init__()
        self.rows, self.shards = rows, shards
        self.tables = nn.ModuleList(nn.Embedding(rows // shards, dim) for _ in range(shards))

    def local_rows(self, values):
        row = torch.remainder(values, self.rows).long()
        return row % self.shards, row // self.shards

    def forward(self, kjt):
        shard, local = self.local_rows(kjt.values)
        vec = torch.stack([self.tables[int(s)].weight[int(r)] for s, r in zip(shard, local)])
        off = kjt.offsets()
        return torch.stack([vec[int(off[i]):int(off[i + 1])].sum(0) for i in range(len(kjt.lengths))])


class DLRMHead(nn.Module):
    def __init__(self, ebc, dim):
        super().__init__()
        self.ebc = ebc
        self.over = nn.Linear(dim, 1)

    def forward(self, kjt):
        return self.over(self.ebc(copy_to_device(kjt))).squeeze(-1)


def request(g, batch=64):
    lengths = torch.randint(1, 5, (batch,), generator=g)
    ids = torch.randint(0, 4_000_000_000, (int(lengths.sum()),), generator=g)
    return KeyedJaggedTensor(["member_id"], ids, lengths)


torch.manual_seed(0)
g = torch.Generator().manual_seed(2)
ebc = ShardedEmbeddingBag(rows=60_000, dim=8, shards=4)
model = DLRMHead(ebc, 8).eval()
kjt = request(g)
with torch.no_grad():
    score = model(kjt)
    want = model.over(ebc(kjt)).squeeze(-1)
s, r = ebc.local_rows(copy_to_device(kjt).values)
ts, tr = ebc.local_rows(kjt.values)
print("ids read from a foreign row: %.0f%%" % (100 * ((s != ts) | (r != tr)).float().mean()))
print("score error rms %.3f, score spread %.3f" % ((score - want).pow(2).mean().sqrt(), want.std()))
