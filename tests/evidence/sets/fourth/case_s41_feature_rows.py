"""
title: a click log has rows without an item, the id column becomes float and later indexes an embedding
expect: collision
fix_at: 35

After https://github.com/rixwew/pytorch-fm/issues/30 and https://github.com/pytorch/pytorch/issues/116598.
Right: turn the filled column back to integers before it leaves the reader.
"""
import random

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(5)
random.seed(5)
FIELDS = {"user": 40, "item": 25, "shop": 10}


def click_log(rows=64):
    for _ in range(rows):
        row = {name: random.randrange(1, size) for name, size in FIELDS.items()}
        if random.random() < 0.1:
            del row["item"]
        yield {**row, "price": random.random(), "click": random.random() < 0.4}


def column(rows, name, missing=float("nan")):
    return torch.tensor([row.get(name, missing) for row in rows])  # BORN


def read(rows):
    ids = torch.stack([column(rows, name) for name in FIELDS], dim=1)  # BORN
    ids = ids.nan_to_num(0.0)
    return TensorDataset(ids, column(rows, "price")[:, None], column(rows, "click").float())


class FactorizationMachine(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, dim, padding_idx=0) for n in FIELDS.values())
        self.dense = nn.Linear(1, dim)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, ids, price):
        fields = [table(ids[:, k]) for k, table in enumerate(self.tables)]  # COLLIDES
        fields = torch.stack(fields + [self.dense(price)], dim=1)
        pairs = 0.5 * (fields.sum(1).square() - fields.square().sum(1)).sum(-1)
        return pairs + self.bias


model = FactorizationMachine()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
data = read(list(click_log()))
for epoch in range(2):
    total = 0.0
    for ids, price, click in DataLoader(data, batch_size=16, shuffle=True):
        loss = F.binary_cross_entropy_with_logits(model(ids, price), click)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(epoch, round(total, 3))
