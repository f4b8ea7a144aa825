"""
title: A home-made ControlNet head in bfloat16 uses diffusers' sinusoidal projection directly
expect: collision
thread: https://github.com/huggingface/diffusers/issues/4860
born_in: embeddings.py:get_timestep_embedding
needs: diffusers

Expectation, written first.  diffusers' Timesteps has no weights and always
returns float32, whatever the model's dtype.  The library's own networks cast
its result to sample.dtype; this hand-written head gives it straight to the
bfloat16 TimestepEmbedding, whose first Linear refuses.  The float32 is born in
get_timestep_embedding inside the library; the line of the script that calls
the time embedding is where it collides, and .to(sample.dtype) there mends it.
"""
import torch
from diffusers.models.embeddings import TimestepEmbedding, Timesteps
from torch import nn

torch.manual_seed(0)


class ResidualFiLM(nn.Module):
    def __init__(self, channels, temb):
        super().__init__()
        self.norm = nn.GroupNorm(4, channels)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.film = nn.Linear(temb, 2 * channels)

    def forward(self, x, temb):
        scale, shift = self.film(temb)[:, :, None, None].chunk(2, 1)
        return x + self.conv((self.norm(x) * (1 + scale) + shift).relu())


class ControlHead(nn.Module):
    def __init__(self, channels=16, temb=64, depth=2):
        super().__init__()
        self.conv_in = nn.Conv2d(4, channels, 3, padding=1)
        self.hint = nn.Conv2d(3, channels, 3, padding=1)
        self.time_proj = Timesteps(32, flip_sin_to_cos=True, downscale_freq_shift=0)
        self.time_embedding = TimestepEmbedding(32, temb)
        self.blocks = nn.ModuleList(ResidualFiLM(channels, temb) for _ in range(depth))
        self.zero_out = nn.Conv2d(channels, 4, 1)

    def forward(self, sample, timestep, hint):
        emb = self.time_embedding(self.time_proj(timestep))  # COLLIDES
        h = self.conv_in(sample) + self.hint(hint)
        for block in self.blocks:
            h = block(h, emb)
        return self.zero_out(h)


def main():
    weight_dtype = torch.bfloat16
    head = ControlHead().to(weight_dtype).eval()
    sample = torch.randn(2, 4, 16, 16, dtype=weight_dtype)
    hint = torch.rand(2, 3, 16, 16, dtype=weight_dtype)
    with torch.no_grad():
        for t in (999, 500, 1):
            out = head(sample, torch.tensor([t, t]), hint)
            print(t, round(out.float().std().item(), 4))


if __name__ == "__main__":
    main()
