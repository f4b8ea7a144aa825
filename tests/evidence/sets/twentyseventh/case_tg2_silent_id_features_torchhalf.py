"""
title: ids above 2048 packed into a half feature matrix look up the wrong rows
expect: silent:downcast|round-trip
thread: https://github.com/pytorch/pytorch/issues/70179
measured: rows of the right item 1778 of 3000, distinct items 1786, mean rating 2.806
widened: rows of the right item 3000 of 3000, distinct items 2344, mean rating 2.806; innocent: rows of the right item 1778 of 3000, distinct items 1786, mean rating 2.806
suspect: 23 exact (half stars)

Expectation, written first: float16 holds whole numbers only up to 2048; 2101 becomes 2100, and beyond 4096 only every
fourth number exists. The item ids travel in a half matrix and come back as long, so most of them point to a neighbour's
row. Remedy: keep the ids as integers. The half ratings (0.5 to 5.0) are exact.
"""
import torch
from torch.utils.data import DataLoader, Dataset


class Interactions(Dataset):
    def __init__(self, n, num_users, num_items, seed):
        g = torch.Generator().manual_seed(seed)
        self.user = torch.randint(0, num_users, (n,), generator=g)
        self.item = torch.randint(0, num_items, (n,), generator=g)
        stars = torch.randint(1, 11, (n,), generator=g) / 2
        self.rating = stars.half()

    def __len__(self):
        return len(self.user)

    def __getitem__(self, i):
        return torch.stack([self.user[i], self.item[i]]).half(), self.rating[i]  # BORN


class ItemIndex:
    """row i of the table belongs to item i; its first entry is the popularity of the item"""

    def __init__(self, num_items):
        self.popularity = torch.zeros(num_items, dtype=torch.long)
        self.stars = torch.zeros(num_items)

    def add(self, items, ratings):
        self.popularity.index_add_(0, items, torch.ones_like(items))
        self.stars.index_add_(0, items, ratings)

    def seen(self):
        return int((self.popularity > 0).sum())


def main():
    data = Interactions(3000, num_users=500, num_items=6000, seed=70179)
    index = ItemIndex(6008)
    right = 0
    loader = DataLoader(data, batch_size=250)
    for b, (features, ratings) in enumerate(loader):
        users, items = features.long().unbind(dim=1)  # BORN
        index.add(items, ratings.float())
        right += (items == data.item[b * 250:(b + 1) * 250]).sum().item()
    mean = index.stars.sum() / index.popularity.sum()
    print(f"rows of the right item {right} of {len(data)}, distinct items {index.seen()}, mean rating {mean:.3f}")


main()
