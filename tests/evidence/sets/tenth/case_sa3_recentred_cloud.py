"""
title: a georeferenced scan is recentred in float64 before it becomes float32
expect: clean
thread: https://github.com/Aurtechmx/openlidarviewer/pull/834
measured: largest position error 0.0153 mm, of the height model 0.0016 mm

Expectation, written first: the origin is taken off in float64, what remains is a few hundred
metres and float32 keeps it to a hundredth of a millimetre.
"""
import torch


class Tile:
    def __init__(self, world):
        self.origin = world.amin(0).floor()
        self.local = (world - self.origin).to(torch.float32)

    def world(self):
        return self.local.double() + self.origin


def height_model(tile, cell=5.0):
    ij = (tile.local[:, :2] / cell).long()
    key = ij[:, 0] * 1000 + ij[:, 1]
    keys, inv = key.unique(return_inverse=True)
    total = torch.zeros(len(keys)).index_add_(0, inv, tile.local[:, 2])
    return keys, total / torch.bincount(inv)


def survey(n, seed=0):
    gen = torch.Generator().manual_seed(seed)
    xy = torch.rand(n, 2, generator=gen, dtype=torch.float64) * 300
    z = 90 + 4 * torch.sin(xy[:, :1] / 25) + 0.03 * torch.randn(n, 1, generator=gen, dtype=torch.float64)
    return torch.cat([xy + torch.tensor([388096.2, 3948996.7], dtype=torch.float64), z], 1)


def main():
    world = survey(20000)
    tile = Tile(world)
    back = (tile.world() - world).abs().max().item()
    keys, ground = height_model(tile)
    wide = Tile(world)
    wide.local = world - wide.origin
    ij = (wide.local[:, :2] / 5.0).long()
    _, inv = (ij[:, 0] * 1000 + ij[:, 1]).unique(return_inverse=True)
    exact = torch.zeros(int(inv.max()) + 1, dtype=torch.float64).index_add_(0, inv, wide.local[:, 2]) / torch.bincount(inv)
    gap = (ground.double() - exact).abs().max().item() if len(exact) == len(ground) else float("nan")
    print(f"largest position error {1000 * back:.4f} mm, of the height model {1000 * gap:.4f} mm")


main()
