"""
title: Sinusoidal timestep features stay float32 in front of a bfloat16 embedder
expect: collision
thread: https://github.com/Lakonik/ComfyUI-piFlow/issues/18
fix_at: (none beside the marked)

Expectation, written first: The transformer is loaded in bfloat16 and so are image and text. timestep_embedding
computes its features in float32 and gives them back as they are; the caller does not cast, and the first linear
layer of the time embedder raises for Float and BFloat16.
"""
import math

import torch
import torch.nn as nn


def timestep_embedding(t, dim, max_period=10000, time_factor=1000.0):
    t = time_factor * t.float()  # BORN
    half = dim // 2
    freqs = torch.exp(-math.log(max_period) * torch.arange(half, dtype=torch.float32) / half)  # BORN
    args = t[:, None] * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)  # BORN


class MLPEmbedder(nn.Module):
    def __init__(self, in_dim, hidden_dim):
        super().__init__()
        self.in_layer = nn.Linear(in_dim, hidden_dim, bias=False)
        self.out_layer = nn.Linear(hidden_dim, hidden_dim, bias=False)

    def forward(self, x):
        return self.out_layer(nn.functional.silu(self.in_layer(x)))  # COLLIDES


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim, elementwise_affine=False)
        self.mod, self.lin = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, vec):
        shift, scale, gate = self.mod(vec)[:, None].chunk(3, -1)
        return x + gate * torch.tanh(self.lin(self.norm(x) * (1 + scale) + shift))


class GMFlux2(nn.Module):
    def __init__(self, in_channels=8, dim=32, num_gaussians=2):
        super().__init__()
        self.img_in, self.txt_in = nn.Linear(in_channels, dim), nn.Linear(12, dim)
        self.time_in = MLPEmbedder(16, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(2))
        self.final = nn.Linear(dim, in_channels * num_gaussians)
        self.k = num_gaussians

    def forward(self, img, txt, timesteps):
        n = img.shape[1]
        x = torch.cat([self.img_in(img), self.txt_in(txt)], dim=1)
        vec = self.time_in(timestep_embedding(timesteps, 16))  # BORN
        for block in self.blocks:
            x = block(x, vec)
        means = self.final(x[:, :n]).unflatten(-1, (self.k, -1))
        return means.mean(dim=2)


class PiFlowSampler:
    def __init__(self, nfe, shift=3.2):
        sigma = torch.linspace(1, 0, nfe + 1)
        self.sigmas = shift * sigma / (1 + (shift - 1) * sigma)

    def sample(self, model, noise, txt):
        x = noise
        for s, s_next in zip(self.sigmas[:-1], self.sigmas[1:]):
            timesteps = s.expand(len(x))
            v = model(x, txt, timesteps)
            x = x + (s_next - s).to(x.dtype) * v
        return x


def load_diffusion_model(weight_dtype):
    return GMFlux2().to(weight_dtype).eval()


@torch.no_grad()
def main():
    torch.manual_seed(18)
    dtype = torch.bfloat16
    model = load_diffusion_model(dtype)
    noise, txt = torch.randn(2, 6, 8, dtype=dtype), torch.randn(2, 3, 12, dtype=dtype)
    out = PiFlowSampler(nfe=4).sample(model, noise, txt)
    print("latent std", round(out.float().std().item(), 3))


if __name__ == "__main__":
    main()
