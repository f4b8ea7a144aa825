"""
title: scattering lidar pillars into a bird's-eye canvas in half precision
expect: collision
thread: https://github.com/open-mmlab/mmdetection3d/issues/1842

Expectation, written first: the pillar features come in float16 but the canvas is
allocated without a dtype, that is float32; writing by an index list refuses:
Index put requires the source and destination dtypes match.
BORN is the canvas factory; dtype=features.dtype mends it.
"""
import torch
from torch import nn


class PillarEncoder(nn.Module):
    def __init__(self, in_dim=4, width=16):
        super().__init__()
        self.lin = nn.Linear(in_dim, width)

    def forward(self, points):
        return torch.relu(self.lin(points)).amax(dim=1)


class PillarScatter(nn.Module):
    def __init__(self, width, nx, ny):
        super().__init__()
        self.width, self.nx, self.ny = width, nx, ny

    def forward(self, features, coords):
        canvas = torch.zeros(self.width, self.ny * self.nx)  # BORN
        flat = coords[:, 0] * self.nx + coords[:, 1]
        canvas[:, flat] = features.t()  # COLLIDES
        return canvas.view(1, self.width, self.ny, self.nx)


class Detector(nn.Module):
    def __init__(self, nx=16, ny=12):
        super().__init__()
        self.encoder = PillarEncoder()
        self.scatter = PillarScatter(16, nx, ny)
        self.head = nn.Conv2d(16, 2, 1)

    def forward(self, points, coords):
        bev = self.scatter(self.encoder(points), coords)
        return self.head(bev.to(self.head.weight.dtype))


def synthetic_sweep(gen, pillars=20, per=8):
    points = torch.randn(pillars, per, 4, generator=gen)
    cells = torch.randperm(16 * 12, generator=gen)[:pillars]
    return points, torch.stack([cells // 16, cells % 16], dim=1)


def main():
    torch.manual_seed(2)
    gen = torch.Generator().manual_seed(2)
    model = Detector().half().eval()
    hits = 0
    with torch.no_grad():
        for _ in range(3):
            points, coords = synthetic_sweep(gen)
            heat = model(points.half(), coords)
            hits += int((heat.float().sigmoid() > 0.5).sum())
    print("cells above threshold", hits)


if __name__ == "__main__":
    main()
