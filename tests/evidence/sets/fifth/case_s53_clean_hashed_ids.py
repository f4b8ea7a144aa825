"""
title: ids are hashed by integers that overflow on purpose, several hashes share one small table
expect: clean

After https://github.com/rixwew/pytorch-fm/issues/30 (the task) and https://github.com/dmlc/dgl/issues/7850 (the same arithmetic by mistake).
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(303)


class Hashes(nn.Module):
    """Multiply-shift hashing: the product is meant to wrap, its upper bits are the slot."""

    def __init__(self, count, bits):
        super().__init__()
        self.bits = bits
        self.register_buffer("factor", torch.randint(1, 2 ** 62, (count,)) * 2 + 1)
        self.register_buffer("shift", torch.randint(0, 2 ** 62, (count,)))

    def forward(self, ids):
        mixed = ids[..., None] * self.factor + self.shift
        return (mixed >> (64 - self.bits)) & (2 ** self.bits - 1)


class HashedEmbedding(nn.Module):
    def __init__(self, dim, count=3, bits=9):
        super().__init__()
        self.hashes = Hashes(count, bits)
        self.table = nn.Embedding(2 ** bits, dim)
        self.weight = nn.Parameter(torch.ones(count) / count)

    def forward(self, ids):
        return (self.table(self.hashes(ids)) * self.weight[:, None]).sum(-2)


class Ranker(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.users, self.items = HashedEmbedding(dim), HashedEmbedding(dim)
        self.out = nn.Sequential(nn.Linear(2 * dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, users, items):
        return self.out(torch.cat([self.users(users), self.items(items)], dim=-1))[:, 0]


def checksum(ids):
    """A 32-bit running check of the batch, as the log wants it."""
    value = torch.tensor(0x11C9DC5, dtype=torch.int32)
    for part in ids.to(torch.int32)[:16]:
        value = (value ^ part) * torch.tensor(16777619, dtype=torch.int32)
    return value.item()


USERS, ITEMS = torch.randint(0, 10 ** 12, (60,)), torch.randint(0, 10 ** 12, (40,))
model = Ranker()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(150):
    u, i = torch.randint(0, 60, (128,)), torch.randint(0, 40, (128,))
    loss = F.binary_cross_entropy_with_logits(model(USERS[u], ITEMS[i]), ((u + i) % 2).float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", round(loss.item(), 3), "check", checksum(USERS[u]))
