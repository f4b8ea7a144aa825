"""
title: multi-axis RoPE under autocast: all image positions fall together and the layout of the patches is lost
expect: silent:precision-loss|plan|downcast
thread: https://github.com/huggingface/diffusers/issues/13920
measured: distinct rotary rows 1 of 64, change when patches trade places 0.0000
widened: distinct rotary rows 64 of 64, change when patches trade places 0.1223
innocent: distinct rotary rows 1 of 64, change when patches trade places 0.0000
suspect: line 72 harmless (the linear layers run in bfloat16 under autocast anyway)

Expectation, written first: the frequencies are formed with a matmul, and autocast runs matmuls in bfloat16 in spite of
the float32 casts just before. The image positions start at 65536, where bfloat16 steps by 512, so every patch gets the
same angles and the block does not notice when patches change places. The explicit bfloat16 latents are not to blame.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

IMAGE_POSITION_OFFSET = 65536


class Ideogram4MRoPE(nn.Module):
    def __init__(self, axis_dim, base=10000.0):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / base ** (torch.arange(0, axis_dim, 2).float() / axis_dim), persistent=False)

    def forward(self, position_ids):
        inv_freq = self.inv_freq.float()[None, :, None]
        pos = position_ids.t().float()[:, None, :]
        freqs = inv_freq @ pos  # BORN
        freqs = freqs.permute(2, 0, 1).flatten(1).float()
        emb = torch.cat((freqs, freqs), dim=-1)
        return emb.cos(), emb.sin()


def apply_rotary(x, cos, sin):
    x1, x2 = x.chunk(2, dim=-1)
    return x * cos.to(x.dtype) + torch.cat((-x2, x1), dim=-1) * sin.to(x.dtype)


class TransformerBlock(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.to_qkv = nn.Linear(dim, 3 * dim)
        self.proj_out = nn.Linear(dim, dim)

    def forward(self, hidden_states, rotary):
        q, k, v = self.to_qkv(hidden_states).chunk(3, dim=-1)
        q, k = apply_rotary(q, *rotary) * 3, apply_rotary(k, *rotary) * 3
        out = F.scaled_dot_product_attention(q[None, None], k[None, None], v[None, None])[0, 0]
        return hidden_states + self.proj_out(out)


class Ideogram4Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.rope = Ideogram4MRoPE(axis_dim=16)
        self.block = TransformerBlock()

    def forward(self, latents, position_ids):
        rotary = self.rope(position_ids)
        return self.block(latents, rotary), rotary[0]


def main():
    torch.manual_seed(0)
    model = Ideogram4Transformer()
    grid = torch.stack(torch.meshgrid(torch.arange(8), torch.arange(8), indexing="ij"), dim=-1).reshape(-1, 2)
    position_ids = IMAGE_POSITION_OFFSET + grid
    latents = torch.randn(64, 32)
    order = torch.randperm(64)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):  # BORN
        latents = latents.to(torch.bfloat16)
        straight, cos = model(latents, position_ids)
        shuffled, _ = model(latents[order], position_ids)
    change = (shuffled.float() - straight.float()[order]).abs().mean().item()
    print(f"distinct rotary rows {len(torch.unique(cos, dim=0))} of 64, change when patches trade places {change:.4f}")


main()
