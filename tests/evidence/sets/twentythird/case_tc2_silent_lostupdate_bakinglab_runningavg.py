"""
title: the progressive bake keeps its running average in half precision, more samples make it worse
expect: silent:lost-update|precision-loss
thread: https://github.com/TheRealMJP/BakingLab/pull/6
measured: 500 samples: mean brightness error +0.0%, worst texel +1% | 8000 samples: mean brightness error +46.3%, worst texel +127%
widened: 500 samples: mean brightness error -0.0%, worst texel +0% | 8000 samples: mean brightness error -0.0%, worst texel -0%
innocent: 500 samples: mean brightness error +0.0%, worst texel +1% | 8000 samples: mean brightness error +46.3%, worst texel +127%
suspect: line 20, a unit vector rounded once, the direction is off by less than a tenth of a degree

Expectation, written first: the texel results are float16 and every sample is mixed in with weight 1/n. After some thousand samples the
correction of an ordinary sample is below half a unit of the stored value and vanishes, while the rare sun sample is large enough to
count, so the average drifts up. A float32 accumulator converges. The normals stored in half precision are harmless.
"""
import torch


class SurfacePoints:
    def __init__(self, n, g):
        v = torch.randn(n, 3, generator=g)
        self.normal = (v / v.norm(dim=-1, keepdim=True)).to(torch.float16)
        self.albedo = 0.3 + 0.5 * torch.rand(n, generator=g)

    def __len__(self):
        return len(self.albedo)


class Environment:
    def __init__(self, sky=0.9, sun=380.0, cos_sun=0.985):
        self.sun_dir = torch.tensor([0.36, 0.48, 0.80])
        self.sky, self.sun, self.cos_sun = sky, sun, cos_sun

    def radiance(self, d):
        hit = (d @ self.sun_dir) > self.cos_sun
        return self.sky * (0.6 + 0.4 * d[..., 2].clamp(min=0)) + hit * self.sun


def sample_hemisphere(normal, g):
    d = torch.randn(normal.shape, generator=g)
    d = d / d.norm(dim=-1, keepdim=True)
    flip = torch.sign((d * normal).sum(-1, keepdim=True))
    return d * torch.where(flip == 0, torch.ones_like(flip), flip)


class RunningAverageBaker:
    def __init__(self, points):
        self.points = points
        self.result = torch.zeros(len(points), dtype=torch.float16)  # BORN
        self.count = 0

    def add_sample(self, sample):
        self.count += 1
        delta = (sample - self.result) / self.count
        self.result += delta.to(self.result.dtype)  # BORN

    def final_result(self):
        return self.result.float() * self.points.albedo


def bake(points, env, num_samples, seed):
    g = torch.Generator().manual_seed(seed)
    baker = RunningAverageBaker(points)
    total = torch.zeros(len(points), dtype=torch.float64)
    normal = points.normal.float()
    for _ in range(num_samples):
        d = sample_hemisphere(normal, g)
        sample = env.radiance(d) * (d * normal).sum(-1).clamp(min=0) * 2.0
        total += sample.double()
        baker.add_sample(sample)
    exact = (total / num_samples).float() * points.albedo
    return baker.final_result(), exact


points = SurfacePoints(256, torch.Generator().manual_seed(0))
env = Environment()
for n in (500, 8000):
    got, exact = bake(points, env, n, seed=1)
    rel = (got - exact) / exact
    print("%d samples: mean brightness error %+.1f%%, worst texel %+.0f%%" % (n, 100 * rel.mean(), 100 * rel[rel.abs().argmax()]))
