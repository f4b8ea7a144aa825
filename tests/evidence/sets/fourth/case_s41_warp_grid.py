"""
title: the pixel grid of a flow network is float32, feature maps and images are half
expect: collision
fix_at: 20, 25, 26, 27, 28

After https://github.com/pytorch/pytorch/issues/94733 and https://github.com/pytorch/pytorch/issues/42218: grid_sample wants input and grid
in one dtype; here the grid's float32 comes from the coordinates, the flow itself is half.
Right: build the coordinates in the dtype of the features.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(15)


def coords_grid(batch, h, w):
    y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    grid = torch.stack([x, y]).float()  # BORN
    return grid.expand(batch, 2, h, w)


def warp(features, flow):
    b, _, h, w = features.shape
    place = coords_grid(b, h, w) + flow
    x = 2 * place[:, 0] / (w - 1) - 1
    y = 2 * place[:, 1] / (h - 1) - 1
    grid = torch.stack([x, y], dim=-1)
    return F.grid_sample(features, grid, align_corners=True)  # COLLIDES


class FlowNet(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(3, dim, 3, padding=1), nn.ReLU(), nn.Conv2d(dim, dim, 3, padding=1))
        self.update = nn.Conv2d(2 * dim + 2, 2, 3, padding=1)

    def forward(self, first, second, iterations=3):
        a, b = self.encode(first), self.encode(second)
        flow = torch.zeros(a.shape[0], 2, *a.shape[2:], dtype=a.dtype)
        for _ in range(iterations):
            moved = warp(b, flow)
            flow = flow + self.update(torch.cat([a, moved, flow], dim=1))
        return flow


@torch.no_grad()
def evaluate(model, pairs):
    errors = []
    for first, second, truth in pairs:
        flow = model(first.half(), second.half()).float()
        errors.append((flow - truth).norm(dim=1).mean())
    return torch.stack(errors).mean().item()


def pairs(n):
    for _ in range(n):
        image = torch.rand(1, 3, 12, 12)
        yield image, image.roll(1, dims=3), torch.tensor([1.0, 0.0]).view(1, 2, 1, 1)


model = FlowNet().half().eval()
print("end point error", round(evaluate(model, pairs(3)), 3))
