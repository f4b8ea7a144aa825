"""
title: the transmittance along a ray through thin fog is a running product in half
expect: silent:lost-update|precision-loss|underflow
thread: https://github.com/nerfstudio-project/nerfacc/issues/138
measured: light of the wall that arrives 100.0%, pixel [1.409, 0.609, 0.645]
widened: light of the wall that arrives 48.3%, pixel [0.797, 0.41, 0.436]

Expectation, written first: the opacity of one sample is below half a unit in the last place of one, so one minus
alpha is one; the fog is transparent and the ray sees the wall behind it at full strength.
"""
import torch
from torch import nn


class FogField(nn.Module):
    def __init__(self, density, colour):
        super().__init__()
        self.density, self.colour = density, nn.Parameter(torch.tensor(colour))

    def forward(self, t):
        sigma = self.density * (1 + 0.3 * torch.sin(t))
        return sigma, self.colour.to(t.dtype).expand(*t.shape, 3)


class Renderer:
    def __init__(self, near, far, samples, dtype=torch.float16):
        self.dtype = dtype
        self.step = (far - near) / samples
        self.t = torch.linspace(near, far, samples).to(dtype)

    def weights(self, sigma):
        alpha = -torch.expm1(-sigma * self.step)
        clear = torch.cumprod(1 - alpha, -1)  # BORN
        before = torch.cat([torch.ones_like(clear[..., :1]), clear[..., :-1]], -1)
        return (before * alpha).float(), clear[..., -1:].float()

    def render(self, field, background):
        sigma, rgb = field(self.t)
        weight, left = self.weights(sigma)
        seen = (weight[..., None] * rgb.float()).sum(-2)
        return seen + left * background, left, (weight * self.t.float()).sum(-1)


def main():
    field = FogField(density=0.012, colour=[0.7, 0.7, 0.75])
    renderer = Renderer(near=0.0, far=60.0, samples=4096)
    with torch.no_grad():
        pixel, left, _ = renderer.render(field, background=torch.tensor([0.9, 0.1, 0.1]))
    print(f"light of the wall that arrives {100 * left.item():.1f}%, pixel {[round(v, 3) for v in pixel.tolist()]}")


main()
