"""
title: an image-prompt adapter loads itself in bfloat16 next to a diffusion transformer that runs in half
expect: collision
thread: https://github.com/Shakker-Labs/ComfyUI-IPAdapter-Flux/issues/7
fix_at: 28, 33, 48, 49, 68, 69, 70, 72

Expectation, written first: the query of the extra attention comes from the transformer and is float16, key and
value come from the adapter, whose loader always casts to bfloat16; the attention refuses the mixture.
"""
import torch
import torch.nn.functional as F
from torch import nn


def heads(x, n):
    return x.unflatten(-1, (n, -1)).transpose(1, 2)


class PictureAdapter(nn.Module):
    def __init__(self, width, image_width=20, tokens=4):
        super().__init__()
        self.tokens = tokens
        self.proj = nn.Linear(image_width, tokens * width)
        self.to_k, self.to_v = nn.Linear(width, width), nn.Linear(width, width)

    @classmethod
    def load(cls, width):
        return cls(width).to(dtype=torch.bfloat16)  # BORN

    def forward(self, embedding):
        x = self.proj(embedding.to(self.proj.weight.dtype))
        x = x.unflatten(-1, (self.tokens, -1))
        return self.to_k(x), self.to_v(x)


class Block(nn.Module):
    def __init__(self, width, n):
        super().__init__()
        self.n, self.picture = n, None
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.scale = 0.7

    def forward(self, x):
        q, k, v = (heads(t, self.n) for t in self.qkv(self.norm(x)).chunk(3, -1))
        attn = F.scaled_dot_product_attention(q, k, v)
        if self.picture is not None:
            ip_k, ip_v = (heads(t, self.n) for t in self.picture)
            extra = F.scaled_dot_product_attention(q, ip_k, ip_v)  # COLLIDES
            attn = attn + self.scale * extra
        return x + self.out(attn.transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    def __init__(self, width=32, n=4, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, n) for _ in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


@torch.no_grad()
def main():
    torch.manual_seed(2)
    model = Transformer().to(dtype=torch.float16)
    adapter = PictureAdapter.load(32)
    picture = adapter(torch.randn(2, 20))
    for block in model.blocks:
        block.picture = picture
    latents = torch.randn(2, 16, 32).to(model.blocks[0].out.weight.dtype)
    for sigma in (1.0, 0.6, 0.2):
        latents = latents - 0.4 * sigma * model(latents)
    print(tuple(latents.shape), round(latents.float().std().item(), 4))


main()
