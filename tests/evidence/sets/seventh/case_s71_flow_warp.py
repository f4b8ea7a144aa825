"""
title: Optical-flow refinement in half precision warps with a float32 pixel grid
expect: collision
thread: https://github.com/pytorch/pytorch/issues/42218

Expectation, written first.  Network and frames are float16.  The base grid is
built by torch.linspace with the default dtype; grid + flow promotes to
float32, so grid_sample receives half features and a float grid and refuses.
BORN are the two linspace lines that make the grid (either may be blamed);
casting the grid to the features' dtype mends it.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


def base_grid(h, w):
    ys = torch.linspace(-1, 1, h)  # BORN
    xs = torch.linspace(-1, 1, w)  # BORN
    gy, gx = torch.meshgrid(ys, xs, indexing="ij")
    return torch.stack([gx, gy], -1)


class Features(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, dim, 3, padding=1), nn.ReLU(), nn.Conv2d(dim, dim, 3, padding=1))

    def forward(self, x):
        return self.net(x)


class FlowRefiner(nn.Module):
    def __init__(self, dim=16, iterations=3):
        super().__init__()
        self.features = Features(dim)
        self.update = nn.Sequential(nn.Conv2d(2 * dim + 2, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 2, 3, padding=1))
        self.iterations = iterations

    def warp(self, feature, flow):
        h, w = feature.shape[-2:]
        grid = base_grid(h, w)[None] + flow.permute(0, 2, 3, 1)
        return F.grid_sample(feature, grid, align_corners=True)  # COLLIDES

    def forward(self, first, second):
        f1, f2 = self.features(first), self.features(second)
        flow = torch.zeros(first.size(0), 2, *first.shape[-2:], dtype=f1.dtype)
        for _ in range(self.iterations):
            warped = self.warp(f2, flow)
            flow = flow + 0.1 * torch.tanh(self.update(torch.cat([f1, warped, flow], 1)))
        return flow


def end_point_error(flow, truth):
    return (flow.float() - truth).norm(dim=1).mean().item()


if __name__ == "__main__":
    model = FlowRefiner().half().eval()
    first = torch.rand(2, 3, 24, 32)
    second = torch.roll(first, shifts=2, dims=-1)
    truth = torch.zeros(2, 2, 24, 32)
    truth[:, 0] = 2 * 2 / 31
    with torch.no_grad():
        flow = model(first.half(), second.half())
    print(f"EPE = {end_point_error(flow, truth):.4f}")
