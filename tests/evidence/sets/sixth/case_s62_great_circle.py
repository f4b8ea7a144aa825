"""
title: the nearest stop is looked for with the law of cosines in float32, near stops are all equally far
expect: silent:precision-loss|downcast|cancellation
fix_at: 19

After https://github.com/georust/geo/issues/100, https://github.com/gboeing/osmnx/pull/131 and https://github.com/AndGem/OsmToRoadGraph/pull/90.
Right: the positions stay float64 (or the haversine formula is used).
"""
import math

import torch

torch.manual_seed(715)


class Stops:
    """Bus stops of a town, latitude and longitude in degrees."""

    def __init__(self, positions, dtype=torch.float32):
        self.radians = (positions * math.pi / 180).to(dtype)  # BORN

    def distances(self, riders):
        a = (riders * math.pi / 180).to(self.radians.dtype)[:, None]
        b = self.radians[None]
        cosine = a[..., 0].sin() * b[..., 0].sin() + a[..., 0].cos() * b[..., 0].cos() * (a[..., 1] - b[..., 1]).cos()
        return 6371000 * torch.acos(cosine.clamp(-1, 1))

    def nearest(self, riders):
        return self.distances(riders).argmin(1)


def town(count, centre=(48.137, 11.575), spread=0.006):
    return torch.tensor(centre, dtype=torch.float64) + spread * torch.randn(count, 2, dtype=torch.float64)


def flat_metres(riders, stops):
    """In a town the earth is flat: exact enough to judge by."""
    scale = torch.tensor([111195.0, 111195.0 * math.cos(math.radians(48.137))], dtype=torch.float64)
    return ((riders[:, None] - stops[None]) * scale).norm(dim=-1)


positions, riders = town(300), town(400)
stops = Stops(positions)
truth = flat_metres(riders, positions)
pick = stops.nearest(riders)
walk = truth.gather(1, pick[:, None])[:, 0]
best = truth.min(1)
print("right stop", round((pick == best.indices).float().mean().item(), 3), "metres walked", round(walk.mean().item(), 1), "needed",
      round(best.values.mean().item(), 1))
