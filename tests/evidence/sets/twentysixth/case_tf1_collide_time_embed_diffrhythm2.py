"""
title: Sinusoidal time embedding in float32 enters the half precision time MLP
expect: collision
thread: https://github.com/xiaomi-research/diffrhythm2/issues/5
fix_at: (none beside the marked)

Expectation, written first: The DiT is cast to half, the sampler's times too, but the sinusoidal embedding multiplies
the times with an arange in float32, so the embedding is float32; the Linear of the time MLP has Half weights and raises.
"""
import math

import torch
import torch.nn as nn


class SinusPositionEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x, scale=1000):
        half_dim = self.dim // 2
        emb = math.log(10000) / (half_dim - 1)
        emb = torch.exp(torch.arange(half_dim).float() * -emb)  # BORN
        emb = scale * x.unsqueeze(1) * emb.unsqueeze(0)  # BORN
        return torch.cat((emb.sin(), emb.cos()), dim=-1)  # BORN


class TimestepEmbedding(nn.Module):
    def __init__(self, dim, freq_embed_dim=32):
        super().__init__()
        self.time_embed = SinusPositionEmbedding(freq_embed_dim)
        self.time_mlp = nn.Sequential(nn.Linear(freq_embed_dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, timestep):
        time_hidden = self.time_embed(timestep)  # BORN
        return self.time_mlp(time_hidden)  # BORN COLLIDES


class DiTBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim, elementwise_affine=False)
        self.ada = nn.Linear(dim, 2 * dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, t):
        shift, scale = self.ada(t).chunk(2, dim=-1)
        return x + self.ff(self.norm(x) * (1 + scale[:, None]) + shift[:, None])


class DiT(nn.Module):
    def __init__(self, mel_dim=16, dim=32, depth=2, num_tokens=20):
        super().__init__()
        self.time_embed = TimestepEmbedding(dim)
        self.text_embed = nn.Embedding(num_tokens, dim)
        self.input_proj = nn.Linear(mel_dim + dim, dim)
        self.blocks = nn.ModuleList(DiTBlock(dim) for _ in range(depth))
        self.proj_out = nn.Linear(dim, mel_dim)

    def forward(self, x, text, time):
        t = self.time_embed(time)
        h = self.input_proj(torch.cat([x, self.text_embed(text)], dim=-1))
        for block in self.blocks:
            h = block(h, t)
        return self.proj_out(h)


class CFM:
    def __init__(self, transformer, dtype):
        self.transformer = transformer.to(dtype).eval()
        self.dtype = dtype

    @torch.no_grad()
    def sample_block_cache(self, text, block_size, steps):
        latents = []
        for start in range(0, text.shape[1], block_size):
            block_text = text[:, start:start + block_size]
            x = torch.randn(len(text), block_text.shape[1], 16).to(self.dtype)
            t_span = torch.linspace(0, 1, steps + 1)
            for t, t_next in zip(t_span[:-1], t_span[1:]):
                time = t.expand(len(text)).to(self.dtype)
                x = x + (t_next - t).to(self.dtype) * self.transformer(x, block_text, time)
            latents.append(x)
        return torch.cat(latents, dim=1)


def inference():
    torch.manual_seed(5)
    model = CFM(DiT(), torch.float16)
    text = torch.randint(0, 20, (2, 24))
    latent = model.sample_block_cache(text, block_size=12, steps=4)
    print("latent", tuple(latent.shape), latent.dtype, "std", round(latent.float().std().item(), 2))


if __name__ == "__main__":
    inference()
