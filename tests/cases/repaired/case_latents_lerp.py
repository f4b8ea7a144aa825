"""
title: eased interpolation weights made in the dtype of the latents
expect: clean

All three operands of lerp are half.
"""
import torch
from torch import nn


def easing(frames):
    time = torch.linspace(0.0, 1.0, frames, dtype=torch.float16)

    def smooth(strength):
        curve = time * time * (3 - 2 * time)
        return torch.clamp(curve * strength, max=1.0)

    return smooth


class Walk:
    def __init__(self, decoder, frames):
        self.decoder = decoder
        self.curve = easing(frames)

    def between(self, start, end):
        weight = self.curve(1.0).reshape(-1, 1, 1)
        latents = torch.lerp(start, end, weight)
        return self.decoder(latents)


torch.manual_seed(0)
decoder = nn.Sequential(nn.Conv1d(4, 8, 3, padding=1), nn.SiLU(), nn.Conv1d(8, 1, 1)).half()
start, end = torch.randn(2, 1, 4, 20, dtype=torch.float16)
with torch.no_grad():
    print(Walk(decoder, frames=5).between(start, end).shape)
