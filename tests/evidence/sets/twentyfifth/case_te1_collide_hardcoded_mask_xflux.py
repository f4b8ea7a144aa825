"""
title: Attention bias hard-coded to bfloat16 in a float16 Flux pipeline
expect: collision
thread: https://github.com/XLabs-AI/x-flux-comfyui/pull/177
fix_at: (none beside the marked)

Expectation, written first: The processor turns the text padding into an additive mask and casts it to bfloat16,
whatever the model runs in. With the ZLUDA setting the model is float16, and scaled_dot_product_attention
wants the mask to be bool or of the query's dtype.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class QKNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.query_norm, self.key_norm = nn.RMSNorm(dim), nn.RMSNorm(dim)

    def forward(self, q, k, v):
        return self.query_norm(q).to(v), self.key_norm(k).to(v)


def attention(q, k, v, attn_mask=None):
    x = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)  # COLLIDES
    return x.transpose(1, 2).flatten(2)


def make_attn_mask(txt_mask, img_len):
    full = torch.cat([txt_mask, torch.ones(len(txt_mask), img_len, dtype=torch.bool)], dim=1)
    bias = torch.zeros(full.shape).masked_fill(~full, float("-inf"))
    return bias[:, None, None, :].to(torch.bfloat16)  # BORN


class DoubleStreamMixerProcessor:
    def __call__(self, attn, img, txt, txt_mask):
        qkv = torch.cat([attn.txt_qkv(attn.txt_norm(txt)), attn.img_qkv(attn.img_norm(img))], dim=1)
        q, k, v = qkv.unflatten(-1, (3, attn.num_heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = attn.norm(q, k, v)
        mask = None
        if not txt_mask.all():
            mask = make_attn_mask(txt_mask, img.shape[1])  # BORN
        out = attention(q, k, v, attn_mask=mask)  # BORN
        txt_out, img_out = out[:, : txt.shape[1]], out[:, txt.shape[1]:]
        return img + attn.img_proj(img_out), txt + attn.txt_proj(txt_out)


class DoubleStreamBlock(nn.Module):
    def __init__(self, hidden, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.img_norm = nn.LayerNorm(hidden, elementwise_affine=False)
        self.txt_norm = nn.LayerNorm(hidden, elementwise_affine=False)
        self.img_qkv, self.txt_qkv = nn.Linear(hidden, hidden * 3), nn.Linear(hidden, hidden * 3)
        self.img_proj, self.txt_proj = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.norm = QKNorm(hidden // num_heads)
        self.processor = DoubleStreamMixerProcessor()

    def forward(self, img, txt, txt_mask):
        return self.processor(self, img, txt, txt_mask)


class FluxModel(nn.Module):
    def __init__(self, hidden=32, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList(DoubleStreamBlock(hidden, 4) for _ in range(depth))

    def forward(self, img, txt, txt_mask):
        for block in self.blocks:
            img, txt = block(img, txt, txt_mask)
        return img


def pick_dtype(backend):
    return torch.float16 if backend in ("zluda", "rocm") else torch.bfloat16


@torch.no_grad()
def main():
    torch.manual_seed(177)
    dtype = pick_dtype("zluda")
    model = FluxModel().to(dtype).eval()
    img, txt = torch.randn(2, 9, 32).to(dtype), torch.randn(2, 5, 32).to(dtype)
    for lengths in ([5, 5], [5, 3]):
        txt_mask = torch.arange(5)[None] < torch.tensor(lengths)[:, None]
        out = model(img, txt, txt_mask)
        print("text lengths", lengths, "out std", round(out.float().std().item(), 3))


if __name__ == "__main__":
    main()
