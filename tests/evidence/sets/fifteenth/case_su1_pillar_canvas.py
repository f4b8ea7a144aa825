"""
title: pillar features are scattered into a canvas of the points' dtype while the encoder runs in autocast
expect: collision
thread: https://github.com/open-mmlab/mmdetection3d/issues/1842
fix_at: 34, 36, 45, 48, 62, 63, 64, 68, 73

Expectation, written first: the canvas takes its dtype from the raw points, float32; the linear layer of the pillar
encoder gives bfloat16 under autocast, and an indexed assignment takes only a source of the canvas's dtype.
"""
import torch
from torch import nn


def voxelise(points, cell, nx, ny):
    ij = (points[:, :2] / cell).long()
    keep = ((ij >= 0) & (ij < torch.tensor([nx, ny]))).all(-1)
    flat = ij[keep, 1] * nx + ij[keep, 0]
    coords, inverse = flat.unique(return_inverse=True)
    return points[keep], coords, inverse


class PillarEncoder(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.linear = nn.Linear(7, channels)
        self.norm = nn.LayerNorm(channels)

    def decorate(self, points, inverse, pillars):
        count = torch.zeros(pillars).index_add_(0, inverse, torch.ones(len(points)))
        mean = torch.zeros(pillars, 3).index_add_(0, inverse, points[:, :3]) / count[:, None]
        return torch.cat([points, points[:, :3] - mean[inverse]], -1)

    def forward(self, points, inverse, pillars):
        x = torch.relu(self.linear(self.decorate(points, inverse, pillars)))  # BORN
        index = inverse[:, None].expand_as(x)
        return x.new_zeros(pillars, x.size(1)).scatter_reduce(0, index, x, "amax")


class PillarScatter(nn.Module):
    def __init__(self, channels, nx, ny):
        super().__init__()
        self.channels, self.nx, self.ny = channels, nx, ny

    def blank(self, like):
        return like.new_zeros(self.channels, self.nx * self.ny)  # BORN

    def forward(self, features, coords, canvas):
        canvas[:, coords] = features.t()  # COLLIDES
        return canvas.view(1, self.channels, self.ny, self.nx)


class Detector(nn.Module):
    def __init__(self, channels=16, nx=20, ny=20, cell=1.0):
        super().__init__()
        self.grid = (cell, nx, ny)
        self.encoder = PillarEncoder(channels)
        self.scatter = PillarScatter(channels, nx, ny)
        self.backbone = nn.Sequential(nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 1))

    def forward(self, cloud):
        points, coords, inverse = voxelise(cloud, *self.grid)
        canvas = self.scatter.blank(points)
        features = self.encoder(points, inverse, len(coords))
        return self.backbone(self.scatter(features, coords, canvas))


class Runner:
    def __init__(self, model, amp_dtype=torch.bfloat16):
        self.model, self.amp_dtype = model, amp_dtype
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run_iter(self, cloud, target):
        with torch.autocast("cpu", dtype=self.amp_dtype):
            heat = self.model(cloud)
        loss = nn.functional.binary_cross_entropy_with_logits(heat.float(), target)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


if __name__ == "__main__":
    torch.manual_seed(5)
    cloud = torch.cat([torch.rand(400, 3) * 20, torch.rand(400, 1)], -1)
    target = (torch.rand(1, 1, 20, 20) > 0.9).float()
    runner = Runner(Detector())
    print("losses", [round(runner.run_iter(cloud, target), 4) for _ in range(3)])
