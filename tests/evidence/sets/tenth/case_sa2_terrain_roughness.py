"""
title: roughness of a raster comes from a one-pass variance in float32
expect: silent:precision-loss|downcast|cancellation
thread: https://github.com/xarray-contrib/xarray-spatial/issues/2831
measured: median roughness: left 0.0 mm, right 0.0 mm (made with 4 and 25)
widened: median roughness: left 4.1 mm, right 23.4 mm (made with 4 and 25)

Expectation, written first: elevations in millimetres near four million have squares near
1.6e13, where float32 steps are a million; a variance of some hundreds is lost in them.
"""
import torch
import torch.nn.functional as F


class Raster:
    def __init__(self, size=48, seed=0):
        gen = torch.Generator().manual_seed(seed)
        slope = torch.linspace(0, 40, size, dtype=torch.float64)[:, None]
        relief = torch.where(torch.arange(size)[None] < size // 2, 4.0, 25.0)
        noise = torch.randn(size, size, generator=gen, dtype=torch.float64) * relief
        self.millimetres = 4_000_000 + slope + noise

    def tensor(self):
        return self.millimetres.to(torch.float32)[None, None]  # BORN


def focal_std(raster, k=5):
    area = F.unfold(raster, k)
    n = area.shape[1]
    mean = area.sum(1) / n
    var = (area ** 2).sum(1) / n - mean * mean
    side = raster.shape[-1] - k + 1
    return var.clamp(min=0).sqrt().view(side, side)


def main():
    raster = Raster()
    rough = focal_std(raster.tensor())
    side = rough.shape[0]
    smooth_half, rough_half = rough[:, : side // 2 - 3], rough[:, side // 2 + 3:]
    print(f"median roughness: left {smooth_half.median():.1f} mm, right {rough_half.median():.1f} mm (made with 4 and 25)")


main()
