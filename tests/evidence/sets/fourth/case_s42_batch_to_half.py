"""
title: a helper casts the whole batch to half, the item ids in it travel as float
expect: silent:precision-loss|downcast|round-trip
fix_at: 23, 51

After https://github.com/deepspeedai/DeepSpeed/issues/5701 and https://github.com/huu4ontocord/MDEL/issues/44 (ids cast with the batch): half has no odd
numbers beyond 2048 and steps of 4 beyond 4096. The other cast to half, of the prices, is innocent.
Here 0.74 of the items are looked up under another id. Right: leave ids alone.
"""
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(34)
ITEMS = 20000


def interactions(n=512):
    item = torch.randint(0, ITEMS, (n,))
    price = torch.rand(n, 1)
    bought = (item % 2 == 0).float()
    return TensorDataset(item.float(), price, bought)


def to_compute(batch, dtype):
    item, price, bought = batch
    item = item.to(dtype)  # BORN
    price = price.to(dtype)
    return item, price, bought


class TwoTower(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.items = nn.Embedding(ITEMS + 1, dim)
        self.price = nn.Linear(1, dim)
        self.out = nn.Linear(dim, 1)

    def forward(self, item, price):
        h = self.items(item.long()) + self.price(price.float())
        return self.out(torch.relu(h))[:, 0]


data = interactions()
model = TwoTower()
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for epoch in range(6):
    moved, total, seen = 0, 0.0, 0
    for batch in DataLoader(data, batch_size=128, shuffle=True):
        item, price, bought = to_compute(batch, torch.float16)
        loss = F.binary_cross_entropy_with_logits(model(item, price), bought)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        moved += int((item.long() != batch[0].long()).sum())
        seen += len(item)
        total += loss.item()
print("loss", round(total / 4, 4), "wrong ids", round(moved / seen, 3))
