"""
title: thin splats are packed with half precision covariances and disappear from the coarse level
expect: silent:underflow|downcast
thread: https://github.com/drsnuggles8/OloEngineBase/pull/1040
measured: splats in the merge 500 of 2000, cells of the coarse level 108, mean red 0.10
widened: splats in the merge 2000 of 2000, cells of the coarse level 216, mean red 0.45

Expectation, written first: a thickness of a tenth of a millimetre squared is 1e-8 and vanishes in float16, the
determinant is zero and a splat weighed by its volume takes no part in the merge. The innocent suspects are colour and
opacity, packed in float16 as well: they lie in [0, 1].
"""
import torch


class SplatCloud:
    def __init__(self, centre, rotation, scale, colour, opacity):
        self.centre, self.rotation, self.scale = centre, rotation, scale
        self.colour, self.opacity = colour, opacity

    def covariance(self):
        m = self.rotation * self.scale[:, None, :]
        return m @ m.transpose(1, 2)


class PackedSplats:
    """the record that goes to the renderer"""

    def __init__(self, cloud):
        self.centre = cloud.centre.float()
        self.covariance = cloud.covariance().to(torch.float16)  # BORN
        self.colour = cloud.colour.to(torch.float16)
        self.opacity = cloud.opacity.to(torch.float16)

    def weight(self):
        determinant = torch.linalg.det(self.covariance.double()).clamp(min=0)
        return self.opacity.double() * determinant.sqrt()


class LevelOfDetail:
    def __init__(self, cell):
        self.cell = cell

    def merge(self, splats):
        weight = splats.weight()
        alive = weight > 0
        cells, member = torch.unique(torch.floor(splats.centre[alive] / self.cell).long(), dim=0, return_inverse=True)
        total = torch.zeros(len(cells), dtype=torch.float64).index_add_(0, member, weight[alive])
        share = weight[alive] / total[member]
        colour = torch.zeros(len(cells), 3, dtype=torch.float64)
        colour.index_add_(0, member, splats.colour[alive].double() * share[:, None])
        return cells, colour, int(alive.sum())


def courtyard(gen, walls=1500, bushes=500):
    """flat wall splats facing the axes and round leaves"""
    n = walls + bushes
    axis = torch.randint(0, 3, (n,), generator=gen)
    scale = torch.full((n, 3), 0.04, dtype=torch.float64)
    scale[torch.arange(walls), axis[:walls]] = 1e-4
    rotation = torch.eye(3, dtype=torch.float64).expand(n, 3, 3)
    centre = torch.rand(n, 3, generator=gen, dtype=torch.float64) * 6
    colour = torch.where(torch.arange(n)[:, None] < walls, torch.tensor([0.8, 0.7, 0.6]), torch.tensor([0.1, 0.5, 0.1]))
    centre[:walls, 0] = centre[:walls, 0] % 3
    centre[walls:, 0] = 3 + centre[walls:, 0] % 3
    return SplatCloud(centre, rotation, scale, colour, 0.5 + 0.5 * torch.rand(n, generator=gen))


def main():
    gen = torch.Generator().manual_seed(33)
    cells, colour, alive = LevelOfDetail(cell=1.0).merge(PackedSplats(courtyard(gen)))
    red = colour[:, 0].mean().item()
    print(f"splats in the merge {alive} of 2000, cells of the coarse level {len(cells)}, mean red {red:.2f}")


main()
