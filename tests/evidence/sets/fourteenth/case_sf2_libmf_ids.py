"""
title: users, items and stars of a rating table share one float32 array
expect: silent:precision-loss|downcast|integer-truncation|round-trip
thread: https://github.com/PorkShoulderHolder/python-libmf/issues/13
measured: users 31, rmse 1.39 stars
widened: users 120, rmse 0.03 stars

Expectation, written first: the account numbers are above 2**24, odd ones become even in float32 and neighbours share a
row; users are merged and their tastes averaged. The factors start as bfloat16 numbers, which only rounds the random
start.
"""
import numpy as np
import torch
from torch import nn


def table(users, items, gen):
    """accounts signed up one after another; odd and even numbers have different tastes"""
    rows = []
    for user in range(users):
        taste = 1 if user % 2 else -1
        for item in gen.choice(items, 12, replace=False):
            rows.append((40_000_000 + user, 500 + item, 3 + 1.5 * taste * (1 if item % 2 else -1)))
    users, items, stars = map(np.array, zip(*rows))
    return users, items, stars


def pack(users, items, stars):
    ratings = np.column_stack([users, items, stars]).astype(np.float32)  # BORN
    return torch.from_numpy(ratings)


class Factorisation(nn.Module):
    def __init__(self, n_users, n_items, k=4):
        super().__init__()
        gen = torch.Generator().manual_seed(0)
        start = torch.randn(n_users + n_items, k, generator=gen).to(dtype=torch.bfloat16)
        self.user = nn.Parameter(0.3 * start[:n_users].float())
        self.item = nn.Parameter(0.3 * start[n_users:].float())

    def forward(self, u, i):
        return 3 + (self.user[u] * self.item[i]).sum(-1)


class Encoder:
    def __init__(self, column):
        self.ids, self.codes = column.long().unique(return_inverse=True)

    def __len__(self):
        return len(self.ids)


def main():
    gen = np.random.default_rng(3)
    ratings = pack(*table(120, 20, gen))
    users, items = Encoder(ratings[:, 0]), Encoder(ratings[:, 1])
    stars = ratings[:, 2].float()
    model = Factorisation(len(users), len(items))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(80):
        loss = (model(users.codes, items.codes) - stars).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"users {len(users)}, rmse {loss.sqrt().item():.2f} stars")


main()
