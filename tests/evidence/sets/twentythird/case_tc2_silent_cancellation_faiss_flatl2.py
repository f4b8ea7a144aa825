"""
title: IndexFlatL2 over geocentric coordinates returns a point a kilometre away instead of the one at eight metres
expect: silent:cancellation|precision-loss
thread: https://github.com/facebookresearch/faiss/issues/3245
measured: right stop for 0.0% of the fixes | matched stop is 991 m away in the median, nearest 3.2 m | median reported distance 0 m
widened: right stop for 100.0% of the fixes | matched stop is 3 m away in the median, nearest 3.2 m | median reported distance 3 m
innocent: right stop for 0.0% of the fixes | matched stop is 991 m away in the median, nearest 3.2 m | median reported distance 0 m
suspect: line 46, a rounding of at most a quarter of a metre where stops lie tens of metres apart

Expectation, written first: the index computes |q|^2 + |x|^2 - 2 q.x in float32. With coordinates of four million metres the terms are 4e13
with a spacing of millions, so the squared distances to everything within a kilometre or two are noise and the nearest neighbour is
wrong. Differences first, or float64 in the index, are right. Reading the points as float32 costs a quarter of a metre and is innocent.
"""
import math

import torch


class IndexFlatL2:
    def __init__(self, d, dtype=torch.float32):  # BORN
        self.d = d
        self.dtype = dtype
        self.xb = torch.empty(0, d, dtype=dtype)

    def add(self, x):
        self.xb = torch.cat([self.xb, x.to(self.dtype)])  # BORN

    def search(self, q, k):
        q = q.to(self.dtype)  # BORN
        ip = q @ self.xb.T  # BORN
        dist = (q ** 2).sum(1, keepdim=True) + (self.xb ** 2).sum(1) - 2 * ip  # BORN
        return dist.topk(k, dim=1, largest=False)


def geodetic_to_ecef(lat, lon, alt):
    a, e2 = 6378137.0, 6.69437999014e-3
    lat, lon = torch.deg2rad(lat), torch.deg2rad(lon)
    n = a / torch.sqrt(1 - e2 * torch.sin(lat) ** 2)
    return torch.stack([(n + alt) * torch.cos(lat) * torch.cos(lon),
                        (n + alt) * torch.cos(lat) * torch.sin(lon),
                        (n * (1 - e2) + alt) * torch.sin(lat)], -1)


class StopMatcher:
    def __init__(self, stops):
        self.stops = stops.to(torch.float32)
        self.index = IndexFlatL2(3)
        self.index.add(self.stops)

    def match(self, fixes):
        dist, idx = self.index.search(fixes, 1)
        return idx[:, 0], dist[:, 0]


g = torch.Generator().manual_seed(3)
n = 2000
lat = 41.1 + 0.05 * torch.rand(n, generator=g, dtype=torch.float64)
lon = 29.0 + 0.05 * torch.rand(n, generator=g, dtype=torch.float64)
stops = geodetic_to_ecef(lat, lon, 40 + 5 * torch.rand(n, generator=g, dtype=torch.float64))
pick = torch.randperm(n, generator=g)[:300]
fixes = stops[pick] + 2.0 * torch.randn(300, 3, generator=g, dtype=torch.float64)

matcher = StopMatcher(stops)
idx, dist = matcher.match(fixes)
away = (stops[idx] - fixes).norm(dim=1)
best = torch.cdist(fixes, stops, compute_mode="donot_use_mm_for_euclid_dist").min(1)
print("right stop for %.1f%% of the fixes" % (100 * (idx == best.indices).float().mean()))
print("matched stop is %.0f m away in the median, nearest %.1f m" % (away.median(), best.values.median()))
print("median reported distance %.0f m" % math.sqrt(max(float(dist.median()), 0.0)))
