"""
title: region masks of a custom node are bfloat16, the image model was loaded in half
expect: collision
thread: https://github.com/Comfy-Org/ComfyUI/issues/8118
fix_at: 55

Expectation, written first: the node builds its additive mask in a hard-coded bfloat16; on
this card the loader chose float16, and attention wants a mask of the query's dtype.
"""
import torch
from torch import nn
import torch.nn.functional as F


def pick_dtype(supports_bf16):
    return torch.bfloat16 if supports_bf16 else torch.float16


class RegionNode:
    def __init__(self, regions):
        self.regions = regions

    def build(self, n_text, n_image):
        per = n_text // len(self.regions)
        mask = torch.zeros(n_text + n_image, n_text + n_image)
        for i, (lo, hi) in enumerate(self.regions):
            outside = torch.ones(n_image, dtype=torch.bool)
            outside[lo:hi] = False
            cols = slice(i * per, (i + 1) * per)
            mask[n_text:, cols] = mask[n_text:, cols].masked_fill(outside[:, None], -1e4)
        return mask.to(torch.bfloat16)  # BORN


class DoubleStream(nn.Module):
    def __init__(self, dim=32, heads=4):
        super().__init__()
        self.heads = heads
        self.txt_qkv, self.img_qkv = nn.Linear(dim, 3 * dim), nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, txt, img, attn_mask):
        qkv = torch.cat([self.txt_qkv(txt), self.img_qkv(img)], 1)
        b, n, _ = qkv.shape
        q, k, v = qkv.view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)  # COLLIDES
        return self.out(x.transpose(1, 2).reshape(b, n, -1))[:, txt.shape[1]:]


@torch.no_grad()
def render(steps=3):
    torch.manual_seed(0)
    dtype = pick_dtype(supports_bf16=False)
    model = DoubleStream().to(dtype)
    txt, img = torch.randn(1, 8, 32).to(dtype), torch.randn(1, 16, 32).to(dtype)
    mask = RegionNode([(0, 8), (8, 16)]).build(8, 16)
    for _ in range(steps):
        img = img - 0.3 * model(txt, img, mask)
    return img.float().std().item()


print(f"spread {render():.3f}")
