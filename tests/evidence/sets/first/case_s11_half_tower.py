"""
title: one text tower in float16 among bfloat16 ones makes the joined embedding float32
expect: collision
fix_at: 29

After huggingface/diffusers#11436 (HiDream: expected mat1 and mat2 to have the same dtype; one of the text encoders was float16 in a
bfloat16 pipeline). cat of bfloat16 and float16 is float32, a dtype that nobody asked for. Right change: load that tower in
bfloat16, as the others are.
"""
import torch
from torch import nn


class Tower(nn.Module):
    def __init__(self, vocab, width):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.body = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())

    def forward(self, ids):
        return self.body(self.embed(ids)).mean(1)


class Pipeline:
    def __init__(self, towers, transformer):
        self.towers, self.transformer = towers, transformer

    def pooled(self, ids):
        return torch.cat([tower(ids) for tower in self.towers.values()], dim=-1)

    @torch.no_grad()
    def __call__(self, ids, latents):
        return self.transformer(latents, self.pooled(ids))


class Transformer(nn.Module):
    def __init__(self, width=16, pooled=20):
        super().__init__()
        self.adapt = nn.Sequential(nn.Linear(pooled, width), nn.SiLU(), nn.Linear(width, width))
        self.block = nn.Linear(width, width)

    def forward(self, latents, pooled):
        shift = self.adapt(pooled)  # COLLIDES
        return self.block(latents + shift[:, None])


torch.manual_seed(0)
transformer = Transformer().to(torch.bfloat16).eval()
clip_l = Tower(40, 8).to(torch.bfloat16).eval()
clip_g = Tower(40, 6).to(torch.float16).eval()  # BORN
llama = Tower(40, 6).to(torch.bfloat16).eval()
pipe = Pipeline({"clip_l": clip_l, "clip_g": clip_g, "llama": llama}, transformer)
print(pipe(torch.tensor([[3, 9, 27]]), torch.randn(1, 4, 16, dtype=torch.bfloat16)).dtype)
