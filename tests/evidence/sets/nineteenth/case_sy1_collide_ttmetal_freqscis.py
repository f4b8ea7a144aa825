"""
title: vision attention reference: torch.complex of bf16 cos and sin, Expected both inputs to be Half, Float or Double
expect: collision
thread: https://github.com/tenstorrent/tt-metal/pull/27426
fix_at: 23 (the gather that keeps the dtype)

Expectation, written first: the rotary tables are made in the model's dtype bfloat16 and joined into complex freqs_cis for the reference
implementation; no complex type has bfloat16 parts, so torch.complex refuses. The tables must be made in float32 (complex freqs are always a
pair of floats), or cast there before torch.complex.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def precompute_freqs(dim, end, theta=10000.0, dtype=torch.float32):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: dim // 2].float() / dim))
    angles = torch.outer(torch.arange(end).float(), freqs)
    return torch.cos(angles).to(dtype), torch.sin(angles).to(dtype)  # BORN


def freqs_to_complex(cos, sin, position_ids):
    cos, sin = cos[position_ids], sin[position_ids]
    return torch.complex(cos, sin)  # BORN COLLIDES


def apply_rotary_emb(xq, xk, freqs_cis):
    xq_ = torch.view_as_complex(xq.float().reshape(*xq.shape[:-1], -1, 2))
    xk_ = torch.view_as_complex(xk.float().reshape(*xk.shape[:-1], -1, 2))
    freqs_cis = freqs_cis[None, :, None, :]
    xq_out = torch.view_as_real(xq_ * freqs_cis).flatten(3)
    xk_out = torch.view_as_real(xk_ * freqs_cis).flatten(3)
    return xq_out.type_as(xq), xk_out.type_as(xk)


class ReferenceAttention(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads):
        super().__init__()
        self.head_dim, self.n_heads, self.n_kv_heads = dim // n_heads, n_heads, n_kv_heads
        self.wq = nn.Linear(dim, n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(n_heads * self.head_dim, dim, bias=False)

    def forward(self, x, freqs_cis):
        bsz, seqlen, _ = x.shape
        q = self.wq(x).view(bsz, seqlen, self.n_heads, self.head_dim)
        k = self.wk(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim)
        v = self.wv(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim)
        q, k = apply_rotary_emb(q, k, freqs_cis)
        rep = self.n_heads // self.n_kv_heads
        k, v = k.repeat_interleave(rep, dim=2), v.repeat_interleave(rep, dim=2)
        out = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(bsz, seqlen, -1))


class ModelArgs:
    dim, n_heads, n_kv_heads, max_seq_len, rope_theta = 64, 4, 2, 32, 500000.0

    def __init__(self, dtype):
        self.dtype = dtype

    def get_rope_tables(self):
        return precompute_freqs(self.dim // self.n_heads, self.max_seq_len, self.rope_theta, dtype=self.dtype)  # BORN


def main():
    torch.manual_seed(1)
    args = ModelArgs(torch.bfloat16)
    reference = ReferenceAttention(args.dim, args.n_heads, args.n_kv_heads).to(args.dtype)
    cos, sin = args.get_rope_tables()
    position_ids = torch.arange(12)
    freqs_cis = freqs_to_complex(cos, sin, position_ids)
    with torch.no_grad():
        out = reference(torch.randn(1, 12, args.dim, dtype=args.dtype), freqs_cis)
    print("reference output", out.float().std().item())


if __name__ == "__main__":
    main()
