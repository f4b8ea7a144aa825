"""
title: a feature cache keeps all columns of a table in float16, large incomes all become the same number
expect: silent:overflow|downcast|round-trip
fix_at: 35

After https://github.com/yandex-research/rtdl-revisiting-models/issues/51 and https://github.com/deepspeedai/DeepSpeed/issues/5701 (of the kind).
Right: standardise first, or keep float32.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(220)


def table(rows, seed):
    make = np.random.default_rng(seed)
    income = np.exp(make.normal(11.6, 0.6, rows))
    debt = income * make.uniform(0.2, 1.8, rows)
    age = make.uniform(20, 70, rows)
    default = (debt / income > 1.0).astype(np.float32)
    return {"income": income, "debt": debt, "age": age}, default


class Cache:
    def __init__(self):
        self.blocks = []

    def add(self, columns):
        block = torch.stack([torch.from_numpy(c) for c in columns.values()], dim=1)
        self.blocks.append(block.to(torch.float16))  # BORN

    def matrix(self):
        return torch.cat(self.blocks).float().nan_to_num(posinf=65504.0)


class Scaler:
    def fit(self, x):
        self.mean, self.std = x.mean(0), x.std(0)
        return self

    def __call__(self, x):
        return (x - self.mean) / self.std


def load(seeds, rows=400):
    cache, labels = Cache(), []
    for seed in seeds:
        columns, default = table(rows, seed)
        cache.add(columns)
        labels.append(torch.from_numpy(default))
    return cache.matrix(), torch.cat(labels)


x, y = load(range(5))
scale = Scaler().fit(x)
model = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(400):
    rows = torch.randint(0, len(x), (128,))
    loss = F.binary_cross_entropy_with_logits(model(scale(x[rows]))[:, 0], y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
held, truth = load([99], rows=1000)
with torch.no_grad():
    right = ((model(scale(held))[:, 0] > 0) == (truth > 0.5)).float().mean().item()
print("accuracy", round(right, 3), "values at the limit", round((x == 65504).float().mean().item(), 3))
