"""
title: ratings of players are kept in bfloat16, near 1500 most results change nothing
expect: silent:lost-update|precision-loss|downcast
fix_at: 16

After https://github.com/google-deepmind/optax/issues/1552 and https://github.com/tenstorrent/tt-metal/pull/53386 (increments that a bfloat16 sum no
longer absorbs).
Right: the table is float32.
"""
import torch

torch.manual_seed(702)


class Ratings:
    def __init__(self, players, k=6.0, dtype=torch.bfloat16):
        self.k = k
        self.table = torch.full((players,), 1500.0, dtype=dtype)  # BORN

    def expected(self, first, second):
        gap = self.table[second].float() - self.table[first].float()
        return 1 / (1 + 10 ** (gap / 400))

    def result(self, first, second, won):
        change = self.k * (won - self.expected(first, second))
        self.table[first] += change.to(self.table.dtype)
        self.table[second] -= change.to(self.table.dtype)


class League:
    """Everybody plays each round; stronger players win more often."""

    def __init__(self, players):
        self.skill = torch.randn(players) * 150

    def round(self):
        order = torch.randperm(len(self.skill))
        first, second = order.chunk(2)
        chance = 1 / (1 + 10 ** ((self.skill[second] - self.skill[first]) / 400))
        return first, second, (torch.rand(len(first)) < chance).float()


def rank(x):
    return x.argsort().argsort().float()


def agreement(a, b):
    """Spearman's correlation."""
    return torch.corrcoef(torch.stack([rank(a), rank(b)]))[0, 1].item()


league, ratings = League(200), Ratings(200)
for day in range(300):
    ratings.result(*league.round())
table = ratings.table.float()
test = [league.round() for _ in range(40)]
loss = torch.cat([torch.nn.functional.binary_cross_entropy(ratings.expected(a, b), won, reduction="none") for a, b, won in test]).mean()
print("agreement with skill", round(agreement(table, league.skill), 3), "spread", round(table.std().item(), 1), "log loss", round(loss.item(), 4))
