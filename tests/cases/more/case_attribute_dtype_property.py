"""
title: a dtype property that asks the first parameter, which alone is float32
expect: collision
fix_at: 16, 23

Input and convolutions are bfloat16. The property reads the dtype of a scale that was set after the cast and happens to
come first, and the input is cast to it with the best of intentions.
"""
import torch
from torch import nn


class Base(nn.Module):
    @property
    def dtype(self):
        return next(self.parameters()).dtype

    @property
    def device(self):
        return next(self.parameters()).device

    def accept(self, x):
        return x.to(self.device, self.dtype)


class Upscaler(Base):
    def __init__(self, channels=8):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.body = nn.Sequential(
            nn.Conv2d(3, channels, 3, padding=1),
            nn.SiLU(),
            nn.Conv2d(channels, 12, 3, padding=1),
            nn.PixelShuffle(2),
        )

    def forward(self, image):
        image = self.accept(image)
        return self.body(image) * self.scale  # COLLIDES


def calibrate(model, image):
    gain = image.std().item() / model(image).std().item()
    model.scale = nn.Parameter(torch.tensor([gain]))  # BORN
    return model


torch.manual_seed(0)
with torch.no_grad():
    image = torch.rand(1, 3, 8, 8).bfloat16()
    upscaler = calibrate(Upscaler().bfloat16(), image)
    print(upscaler(image).dtype)
