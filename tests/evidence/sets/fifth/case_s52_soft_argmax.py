"""
title: a keypoint head takes the mean of pixel coordinates that are counted in bfloat16
expect: silent:precision-loss|downcast|round-trip
fix_at: 26, 27

After https://github.com/JimmySuen/integral-human-pose/issues/28 and https://github.com/kornia/kornia/pull/411.
Right: the coordinates are float32.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(203)


def axis(length, like):
    return torch.arange(length, dtype=like.dtype) + 0.5  # BORN


class Integral(nn.Module):
    """Where the heat is, as the expectation of its coordinates."""

    def forward(self, heat):
        batch, joints, height, width = heat.shape
        share = heat.float().flatten(2).softmax(-1).view_as(heat)
        x = (share.sum(2) * axis(width, heat)).sum(-1)
        y = (share.sum(3) * axis(height, heat)).sum(-1)
        return torch.stack([x, y], dim=-1)


class Pose(nn.Module):
    def __init__(self, joints=2):
        super().__init__()
        self.body = nn.Conv2d(joints, joints, 5, padding=2, groups=joints, bias=False)
        self.where = Integral()
        with torch.no_grad():
            self.body.weight.copy_(torch.full_like(self.body.weight, 3.0))

    def forward(self, images):
        return self.where(self.body(images))


def scenes(batch, size=(96, 640), joints=2, spread=2.0):
    """Blobs at known places, one per joint."""
    centre = torch.rand(batch, joints, 2) * torch.tensor([size[1] - 40.0, size[0] - 40.0]) + 20
    xs, ys = torch.arange(size[1]) + 0.5, torch.arange(size[0]) + 0.5
    distance = (xs[None, None, None, :] - centre[..., 0, None, None]) ** 2 + (ys[None, None, :, None] - centre[..., 1, None, None]) ** 2
    return 0.6 * torch.exp(-distance / (2 * spread ** 2)), centre


model = Pose().eval()
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    errors = []
    for _ in range(4):
        images, centre = scenes(8)
        found = model(images)
        errors.append((found.float() - centre).norm(dim=-1).flatten())
errors = torch.cat(errors)
print("pixels off, mean", round(errors.mean().item(), 3), "worst", round(errors.max().item(), 3))
