"""
title: a .double() DiT fails in its timestep embedder: mat1 and mat2 must have the same dtype, Float and Double
expect: collision
thread: https://github.com/soran-ghaderi/torchebm/issues/302
fix_at: 21 (the cast of the finished table)

Expectation, written first: the sinusoidal table is computed in float32 whatever the module's dtype, by an explicit dtype on arange and a
.float() on the timesteps; the embedder's MLP has been turned into float64 with the rest of the model. Its first Linear refuses. The table must
be cast to the MLP's weight dtype before the first layer.
"""
import math

import torch
import torch.nn as nn


def sinusoidal_embedding(t, dim, max_period=10000.0):
    half = dim // 2
    freqs = torch.exp(-math.log(max_period) * torch.arange(0, half, dtype=torch.float32, device=t.device) / half)  # BORN
    args = t[:, None].float() * freqs[None]  # BORN
    emb = torch.cat([torch.cos(args), torch.sin(args)], dim=-1)
    if dim % 2:
        emb = torch.cat([emb, torch.zeros_like(emb[:, :1])], dim=-1)
    return emb


class MLPTimestepEmbedder(nn.Module):
    def __init__(self, out_dim, frequency_embedding_size=32):
        super().__init__()
        self.frequency_embedding_size = frequency_embedding_size
        self.mlp = nn.Sequential(nn.Linear(frequency_embedding_size, out_dim), nn.SiLU(), nn.Linear(out_dim, out_dim))

    def forward(self, t):
        emb = sinusoidal_embedding(t, self.frequency_embedding_size)
        return self.mlp(emb)  # BORN COLLIDES


class AdaLNBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim, elementwise_affine=False)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.modulation = nn.Linear(dim, 3 * dim)

    def forward(self, x, cond):
        shift, scale, gate = self.modulation(cond).chunk(3, dim=-1)
        return x + gate * self.mlp(self.norm(x) * (1 + scale) + shift)


class ConditionalVelocity(nn.Module):
    def __init__(self, data_dim=2, dim=32, depth=2):
        super().__init__()
        self.proj_in = nn.Linear(data_dim, dim)
        self.t_embedder = MLPTimestepEmbedder(dim)
        self.blocks = nn.ModuleList(AdaLNBlock(dim) for _ in range(depth))
        self.proj_out = nn.Linear(dim, data_dim)

    def forward(self, x, t):
        h, cond = self.proj_in(x), self.t_embedder(t)
        for block in self.blocks:
            h = block(h, cond)
        return self.proj_out(h)


@torch.no_grad()
def sample_ode(model, x0, n_steps):
    x, dt = x0, 1.0 / n_steps
    for i in range(n_steps):
        t = torch.full((x.size(0),), i * dt, dtype=x.dtype)
        x = x + dt * model(x, t)
    return x


def main():
    torch.manual_seed(0)
    model = ConditionalVelocity().double()
    samples = sample_ode(model, torch.randn(16, 2, dtype=torch.float64), n_steps=8)
    print("mean", samples.mean(0).tolist())


if __name__ == "__main__":
    main()
