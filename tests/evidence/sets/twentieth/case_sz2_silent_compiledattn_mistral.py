"""
title: compiled attention multiplies queries and keys in float16 before it scales, and the dot product passes 65504
expect: silent:overflow|downcast
thread: https://github.com/stanford-crfm/mistral/issues/67
measured: finite positions 4 of 128 ; mean absolute output nan
widened: finite positions 128 of 128 ; mean absolute output 0.848
innocent: finite positions 4 of 128 ; mean absolute output nan
suspect: 26 exact (-10000 is a float16 number, and it masks as well as any)

Expectation, written first: late in training the queries and keys have entries near 40; 64 of such products are one hundred thousand, so q @ k^T in
float16 is inf before the division by eight and softmax of a row with inf is NaN, although the scaled score would fit. The causal fill of -1e4 in float16
looks like the classic mask overflow, but it is representable and masks.
"""
import math
import torch
from torch import nn


class CausalSelfAttention(nn.Module):
    def __init__(self, dim=128, heads=2, block=32):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(dim, 3 * dim)
        self.c_proj = nn.Linear(dim, dim)
        self.register_buffer("bias", torch.tril(torch.ones(block, block)).bool())
        self.register_buffer("masked_bias", torch.tensor(-1e4, dtype=torch.float16))

    def _attn(self, query, key, value):
        w = torch.matmul(query, key.transpose(-1, -2))  # BORN
        w = w / math.sqrt(value.size(-1))
        n = w.size(-1)
        w = torch.where(self.bias[:n, :n], w, self.masked_bias.to(w.dtype))
        w = torch.softmax(w, dim=-1).to(value.dtype)
        return torch.matmul(w, value)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.c_attn(x).split(c, dim=2)
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        out = self._attn(q, k, v)
        return self.c_proj(out.transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    def __init__(self, dim=128):
        super().__init__()
        self.ln_1 = nn.LayerNorm(dim)
        self.attn = CausalSelfAttention(dim)

    def forward(self, x):
        return x + self.attn(self.ln_1(x))


def resume_checkpoint():
    torch.manual_seed(5)
    block = Block()
    with torch.no_grad():
        block.attn.c_attn.weight[:256].mul_(60.0)
        block.attn.c_attn.weight[128:256].copy_(block.attn.c_attn.weight[:128])
    return block


@torch.no_grad()
def main():
    model = resume_checkpoint().half().eval()  # BORN
    step = torch.compile(model, backend="aot_eager")
    x = torch.randn(4, 32, 128)
    dtype = model.attn.c_proj.weight.dtype
    out = step(x.to(dtype)).float()
    finite = torch.isfinite(out).all(-1)
    print(f"finite positions {int(finite.sum())} of {finite.numel()}")
    print(f"mean absolute output {out.abs().mean().item():.3f}")


main()
