"""
title: weights are converted to float16 before they are published
expect: clean
thread: https://github.com/finegrain-ai/refiners/pull/480
measured: noise std 0.3809 largest weight change 0.000000
suspect: 73 exact (the weights were trained and stored in half and only widened in between)

Expectation, written first: the source checkpoint holds values that came from half and were widened to float32; casting
them back to half is exact, and the adapter is evaluated in float32. Nothing is lost.
"""
import io

import torch
from torch import nn


class ResidualUnit(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(4, channels)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + self.conv(torch.nn.functional.silu(self.norm(x)))


class UNet(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.stem = nn.Conv2d(4, channels, 3, padding=1)
        self.blocks = nn.Sequential(ResidualUnit(channels), ResidualUnit(channels))
        self.out = nn.Conv2d(channels, 4, 3, padding=1)

    def forward(self, x):
        return self.out(self.blocks(self.stem(x)))


class WeightRecipe:
    def __init__(self, key_map):
        self.key_map = key_map

    def run(self, tensors):
        return {self.key_map(name): tensor for name, tensor in tensors.items()}


class Conversion:
    def __init__(self, recipe, dtype):
        self.recipe = recipe
        self.dtype = dtype

    def __call__(self, tensors):
        converted = self.recipe.run(tensors)
        return {name: tensor.to(self.dtype) for name, tensor in converted.items()}


def save_to_buffer(tensors):
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    buffer.seek(0)
    return buffer


def upstream_checkpoint():
    model = UNet().half()
    return {"model.diffusion_model." + k: v.float() for k, v in model.state_dict().items()}


@torch.no_grad()
def main():
    torch.manual_seed(480)
    source = upstream_checkpoint()
    recipe = WeightRecipe(lambda name: name.removeprefix("model.diffusion_model."))
    conversion = Conversion(recipe, dtype=torch.float16)
    published = torch.load(save_to_buffer(conversion(source)))
    unet = UNet()
    unet.load_state_dict(published)
    latents = torch.randn(2, 4, 8, 8)
    noise = unet(latents)
    drift = max((unet.state_dict()[recipe.key_map(k)] - v).abs().max().item() for k, v in source.items())
    print(f"noise std {noise.std().item():.4f} largest weight change {drift:.6f}")


main()
