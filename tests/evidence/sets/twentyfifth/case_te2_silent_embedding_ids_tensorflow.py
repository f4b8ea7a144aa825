"""
title: neighbouring item ids above sixteen million share one embedding
expect: silent:precision-loss|downcast
thread: https://github.com/tensorflow/tensorflow/issues/47187
measured: items in log 400 rows trained 201 last epoch mse 0.9
widened: items in log 400 rows trained 400 last epoch mse 0.0; innocent: items in log 400 rows trained 201 last epoch mse 0.9
suspect: 46 exact (ratings are multiples of one half)

Expectation, written first: the rows (user, item, rating) are stacked into one float32 array; item ids above 2**24 are
rounded to even numbers (or multiples of four), so after .long() several items are one and train one row. Remedy: keep
the ids in int64 (float64 would do). The ratings in half are exact.
"""
import numpy as np
import torch
from torch import nn


class InteractionDataset:
    def __init__(self, users, items, ratings):
        self.rows = np.stack([users, items, ratings], axis=1).astype(np.float32)  # BORN

    def __len__(self):
        return len(self.rows)

    def batches(self, size):
        for i in range(0, len(self), size):
            chunk = torch.from_numpy(self.rows[i:i + size])
            yield chunk[:, 0].long(), chunk[:, 1].long(), chunk[:, 2]


class ItemBias(nn.Module):
    def __init__(self, first_id, num_items):
        super().__init__()
        self.first_id = first_id
        self.embedding = nn.Embedding(num_items + 4, 1)
        nn.init.zeros_(self.embedding.weight)

    def forward(self, item):
        return self.embedding(item - self.first_id).squeeze(-1)


def make_log(rng, first_id, num_items, n):
    items = rng.integers(first_id, first_id + num_items, size=n)
    users = rng.integers(0, 500, size=n)
    quality = rng.integers(2, 11, size=num_items) / 2
    ratings = torch.from_numpy(quality[items - first_id]).half()
    return users, items, ratings.float().numpy()


def main():
    torch.manual_seed(47187)
    first_id, num_items = 19_000_000, 400
    users, items, ratings = make_log(np.random.default_rng(0), first_id, num_items, 8000)
    data = InteractionDataset(users, items, ratings)  # BORN
    model = ItemBias(first_id, num_items)
    table = model.embedding.weight
    for epoch in range(3):
        total, touched = 0.0, set()
        for user, item, rating in data.batches(400):
            loss = (model(item) - rating).square().sum()
            grad, = torch.autograd.grad(loss, table)
            table.data.sub_(0.1 * grad)
            total += loss.item() / len(data)
            touched.update(item.tolist())
    print(f"items in log {len(set(items.tolist()))} rows trained {len(touched)} last epoch mse {total:.1f}")


main()
