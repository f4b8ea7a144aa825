"""
title: rating triplets packed into one float32 array, ratings in half
expect: silent:precision-loss|downcast
thread: https://github.com/PorkShoulderHolder/python-libmf/issues/13
measured: users seen 688 of 1500, training rmse 0.750
widened: users seen 1500 of 1500, training rmse 0.097
fix_at: 29

Expectation, written first: user numbers around 50 million are rounded to multiples of 4
in float32, so users are merged and get each other's taste. Ratings in half are exact to
a hundredth and change nothing.
"""
import torch


class Ratings:
    def __init__(self, users=1500, items=30, seed=0):
        gen = torch.Generator().manual_seed(seed)
        self.user_ids = 50_000_000 + torch.randperm(users * 2, generator=gen)[:users].sort().values
        taste = torch.randn(users, generator=gen)
        appeal = torch.randn(items, generator=gen)
        u, i = torch.meshgrid(torch.arange(users), torch.arange(items), indexing="ij")
        keep = torch.rand(u.shape, generator=gen) < 0.5
        self.u, self.i = u[keep], i[keep]
        self.r = 3 + taste[self.u] * appeal[self.i] + 0.1 * torch.randn(len(self.u), generator=gen)
        self.appeal = appeal

    def triplets(self, id_dtype, rating_dtype):
        ids = self.user_ids[self.u].to(id_dtype)
        return ids, self.i, self.r.to(rating_dtype)


def fit_users(ids, items, ratings, appeal):
    uniq, inverse = torch.unique(ids.long(), return_inverse=True)
    a = appeal[items]
    num = torch.bincount(inverse, weights=a * (ratings.float() - 3))
    den = torch.bincount(inverse, weights=a * a)
    return uniq, num / den, inverse


def rmse(data, ids, theta, inverse):
    pred = 3 + theta[inverse] * data.appeal[data.i]
    return ((pred - data.r) ** 2).mean().sqrt().item()


def main():
    data = Ratings()
    ids, items, ratings = data.triplets(
        id_dtype=torch.float32,  # BORN
        rating_dtype=torch.float16,
    )
    uniq, theta, inverse = fit_users(ids, items, ratings, data.appeal)
    print(f"users seen {len(uniq)} of 1500, training rmse {rmse(data, ids, theta, inverse):.3f}")


main()
