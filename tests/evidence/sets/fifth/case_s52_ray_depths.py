"""
title: depths along a ray, in metres, are spaced in the rays' bfloat16, most intervals have no length
expect: silent:precision-loss|downcast|round-trip
fix_at: 53

After https://github.com/hugoycj/Instant-angelo/pull/34 and https://github.com/yenchenlin/nerf-pytorch/pull/10.
Right: depths are float32, only the network sees bfloat16.
"""
from dataclasses import dataclass

import torch
from torch import nn

torch.manual_seed(217)


@dataclass
class Rays:
    origin: torch.Tensor
    direction: torch.Tensor
    near: float = 40.0
    far: float = 60.0

    def depths(self, count):
        return torch.linspace(self.near, self.far, count, dtype=self.origin.dtype)  # BORN


class Field(nn.Module):
    """A thin shell, like a soap bubble, with a colour that depends on the place."""

    def __init__(self):
        super().__init__()
        self.colour = nn.Linear(3, 3)

    def forward(self, points):
        wide = points.to(torch.promote_types(points.dtype, torch.float32))
        density = 5.0 * torch.exp(-((wide.norm(dim=-1) - 4.0) / 0.1) ** 2)
        return density, torch.sigmoid(self.colour(points.to(self.colour.weight.dtype)))


def camera(side, dtype):
    ys, xs = torch.meshgrid(torch.linspace(-0.09, 0.09, side), torch.linspace(-0.09, 0.09, side), indexing="ij")
    direction = torch.stack([xs, ys, -torch.ones_like(xs)], dim=-1).reshape(-1, 3)
    origin = torch.tensor([0.0, 0.0, 50.0]).expand_as(direction)
    return Rays(origin.to(dtype), direction.to(dtype))


@torch.no_grad()
def render(field, rays, count=384):
    depth = rays.depths(count)
    points = rays.origin[:, None] + depth[:, None] * rays.direction[:, None]
    density, colour = field(points)
    length = torch.cat([depth[1:] - depth[:-1], torch.zeros(1, dtype=depth.dtype)])
    opacity = 1 - torch.exp(-density * length.to(density.dtype))
    through = torch.cumprod(torch.cat([opacity.new_ones(len(opacity), 1), 1 - opacity], dim=1), dim=1)[:, :-1]
    weight = opacity * through
    seen = weight.sum(1)
    where = (weight * depth.to(weight.dtype)).sum(1) / seen.clamp(min=1e-6)
    return (weight[..., None] * colour.to(weight.dtype)).sum(1), where, (length[:-1] == 0).float().mean().item()


field = Field()
rays = camera(12, torch.bfloat16)
exact, far, _ = render(field.double(), Rays(rays.origin.double(), rays.direction.double()))
image, where, empty = render(field.to(torch.bfloat16), rays)
hit = exact.sum(1) > 0.1
print("intervals without length", round(empty, 3), "error of colour", round((image - exact).abs().mean().item(), 4),
      "of depth", round((where - far).abs()[hit].mean().item(), 4))
