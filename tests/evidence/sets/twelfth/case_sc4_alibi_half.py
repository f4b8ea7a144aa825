"""
title: the ALiBi bias is a float16 buffer
expect: clean
thread: https://github.com/mosaicml/llm-foundry/issues/186
measured: equal True, mean logit 0.3897

Expectation, written first: with eight heads the slopes are powers of two and the distances integers below 512; each
product is an exact float16 and the outputs are equal to those of a float32 bias to the last bit.
"""
import math

import torch
from torch import nn


def gen_slopes(n_heads, alibi_bias_max=8):
    closest = 2 ** math.ceil(math.log2(n_heads))
    m = torch.arange(1, closest + 1) * alibi_bias_max / closest
    return 1.0 / torch.pow(2, m)


def build_alibi_bias(n_heads, seq_len, dtype):
    distance = torch.arange(1 - seq_len, 1, dtype=torch.int32).view(1, 1, 1, seq_len)
    return (distance * gen_slopes(n_heads).view(1, n_heads, 1, 1)).to(dtype)


class MPTAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.Wqkv = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x, attn_bias):
        b, s, d = x.shape
        q, k, v = (t.view(b, s, self.n_heads, -1).transpose(1, 2) for t in self.Wqkv(x).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(d // self.n_heads)
        scores = scores + attn_bias[..., -s:]
        scores = scores.masked_fill(torch.ones(s, s).triu(1).bool(), torch.finfo(scores.dtype).min)
        return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, s, d))


class MPTBlock(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.attn = MPTAttention(d_model, n_heads)
        self.ffn = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))

    def forward(self, x, attn_bias):
        x = x + self.attn(self.norm_1(x), attn_bias)
        return x + self.ffn(self.norm_2(x))


class MPTModel(nn.Module):
    def __init__(self, bias_dtype, vocab=200, d_model=64, n_heads=8, max_seq_len=512, n_layers=2):
        super().__init__()
        self.wte = nn.Embedding(vocab, d_model)
        self.blocks = nn.ModuleList(MPTBlock(d_model, n_heads) for _ in range(n_layers))
        self.register_buffer("attn_bias", build_alibi_bias(n_heads, max_seq_len, bias_dtype), persistent=False)

    def forward(self, ids):
        x = self.wte(ids)
        for block in self.blocks:
            x = block(x, self.attn_bias)
        return x @ self.wte.weight.T


def logits(bias_dtype, ids):
    torch.manual_seed(3)
    with torch.no_grad():
        return MPTModel(bias_dtype).eval()(ids)


ids = torch.randint(0, 200, (2, 512), generator=torch.Generator().manual_seed(5))
half, full = logits(torch.float16, ids), logits(torch.float32, ids)
print(f"equal {torch.equal(half, full)}, mean logit {half.mean().item():.4f}")
