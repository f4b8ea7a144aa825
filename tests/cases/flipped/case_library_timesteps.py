"""
title: one layer of a half denoiser's time embedding put back into float32
expect: collision
needs: diffusers

The sinusoid is cast to half like the features. One layer of the library's embedding was raised to float32 after the
cast of the model, and its neighbour was not.
"""
import torch
from diffusers.models.embeddings import TimestepEmbedding, Timesteps
from torch import nn


class Conditioned(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.sinusoid = Timesteps(width, flip_sin_to_cos=True, downscale_freq_shift=0)
        self.embed = TimestepEmbedding(width, channels)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x, timestep):
        wave = self.sinusoid(timestep.flatten())
        wave = wave.repeat_interleave(x.shape[0] // wave.shape[0], dim=0)
        shift = self.embed(wave.to(x.dtype))  # COLLIDES
        return self.conv(x + shift[:, :, None, None])


class Denoiser(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.inward = nn.Conv2d(4, channels, 1)
        self.middle = Conditioned(channels, 16)
        self.outward = nn.Conv2d(channels, 4, 1)

    def forward(self, sample, timestep):
        return self.outward(self.middle(torch.relu(self.inward(sample)), timestep))


torch.manual_seed(0)
denoiser = Denoiser().to(torch.float16)
denoiser.middle.embed.linear_1.float()  # BORN
sample = torch.randn(2, 4, 8, 8).to(torch.float16)
with torch.no_grad():
    for step in torch.linspace(900, 100, 3).long():
        sample = sample - 0.1 * denoiser(sample, step)
print(sample.std().item())
