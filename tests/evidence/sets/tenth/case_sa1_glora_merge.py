"""
title: a generalised adapter trained in float32 is merged into bfloat16 base weights
expect: collision
thread: https://github.com/KohakuBlueleaf/LyCORIS/issues/215

Expectation, written first: the adapter's factors are created in float32 and stay so; the
merge multiplies the base's bfloat16 weight with them, and a matrix product does not promote.
"""
import torch
from torch import nn


class GLoRA(nn.Module):
    def __init__(self, base, rank=4, scale=1.0):
        super().__init__()
        self.org = base
        self.scale = scale
        self.a1 = nn.Parameter(torch.randn(base.in_features, rank) * 0.05)  # BORN
        self.a2 = nn.Parameter(torch.randn(rank, base.in_features) * 0.05)  # BORN
        self.b1 = nn.Parameter(torch.randn(base.out_features, rank) * 0.05)
        self.b2 = nn.Parameter(torch.zeros(rank, base.in_features))

    def get_diff_weight(self, multiplier):
        w = self.org.weight
        mixed = w @ self.a1 @ self.a2  # COLLIDES
        return (mixed + self.b1 @ self.b2) * self.scale * multiplier

    def merge_to(self, multiplier=1.0):
        diff = self.get_diff_weight(multiplier)
        self.org.weight.data.add_(diff.to(self.org.weight.dtype))


class Wrapper:
    def __init__(self, model):
        self.loras = [GLoRA(m) for m in model.modules() if isinstance(m, nn.Linear)]

    @torch.no_grad()
    def merge_to(self, multiplier):
        for lora in self.loras:
            lora.merge_to(multiplier)


class FluxLike(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.img_in = nn.Linear(8, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.out = nn.Linear(dim, 8)

    def forward(self, x):
        x = self.img_in(x)
        return self.out(x + self.mlp(x))


torch.manual_seed(0)
transformer = FluxLike().to(torch.bfloat16)  # BORN
wrapper = Wrapper(transformer)
wrapper.merge_to(0.5)
with torch.no_grad():
    print(transformer(torch.randn(2, 8, dtype=torch.bfloat16)).float().std().item())
