"""
title: neighbours of tree positions in map coordinates are found by cdist with matrix products
expect: silent:precision-loss|downcast
thread: https://github.com/pytorch/pytorch/issues/42479
measured: mean distance to the next tall tree 0.0 m, tall trees within ten metres 146.7
widened: mean distance to the next tall tree 4.0 m, tall trees within ten metres 8.8

Expectation, written first: squared map coordinates are 10**13 and the distances a few metres; in float32 the expanded
square cancels to zero or to hundreds of metres. The heights are bfloat16, but only sort the trees into tall and low.
"""
import torch


class Plot:
    def __init__(self, trees, seed):
        gen = torch.Generator().manual_seed(seed)
        origin = torch.tensor([512_695.0, 5_402_804.0], dtype=torch.float64)
        side = int(trees**0.5)
        grid = torch.cartesian_prod(torch.arange(side), torch.arange(side)).double() * 4
        self.xy = origin + grid + torch.rand(len(grid), 2, generator=gen).double()
        height = 5 + 25 * (torch.rand(len(grid), generator=gen) > 0.5)
        self.height = height.to(torch.bfloat16)

    def tall(self):
        return self.xy[self.height > 20]


def distances(points):
    points = points.float()  # BORN
    return torch.cdist(points, points, compute_mode="use_mm_for_euclid_dist")  # BORN


class Competition:
    """how far the next tall tree is, and how many stand within ten metres"""

    def __init__(self, radius=10.0):
        self.radius = radius

    def __call__(self, points):
        d = distances(points)
        d.fill_diagonal_(float("inf"))
        nearest = d.min(1).values
        return nearest.mean().item(), (d < self.radius).sum(1).double().mean().item()


def main():
    index = Competition()
    near, within = [], []
    for seed in range(4):
        a, b = index(Plot(400, seed).tall())
        near.append(a)
        within.append(b)
    print(f"mean distance to the next tall tree {sum(near) / 4:.1f} m, tall trees within ten metres {sum(within) / 4:.1f}")


main()
