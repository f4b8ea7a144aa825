"""
title: rotary helper returns float32 queries for a bfloat16 cache: expected scalar type Float but found BFloat16
expect: collision
thread: https://github.com/xjdr-alt/entropix/pull/59
fix_at: 55

Expectation, written first: apply_rotary_emb has a default dtype of float32 and the attention calls it without one. The
query comes back float32, the keys are read from a bfloat16 cache, and the einsum of the two raises.
"""
import math

import torch
import torch.nn.functional as F


class KVCache:
    def __init__(self, layers, bsz, max_seq_len, kv_heads, head_dim):
        shape = (layers, bsz, max_seq_len, kv_heads, head_dim)
        self.k = torch.zeros(shape, dtype=torch.bfloat16)
        self.v = torch.zeros(shape, dtype=torch.bfloat16)

    def update(self, xk, xv, layer_idx, cur_pos):
        insert_len = xk.size(1)
        self.k[layer_idx, :, cur_pos:cur_pos + insert_len] = xk
        self.v[layer_idx, :, cur_pos:cur_pos + insert_len] = xv
        end = cur_pos + insert_len
        return self.k[layer_idx, :, :end], self.v[layer_idx, :, :end]


def rms_norm(x, w, eps=1e-6):
    return w * (x * torch.rsqrt(torch.pow(x, 2).mean(-1, keepdim=True) + eps))


def precompute_freqs_cis(dim, end, theta=10000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim))
    t = torch.outer(torch.arange(end, dtype=torch.float32), freqs)
    return torch.polar(torch.ones_like(t), t)


def apply_rotary_emb(xq, xk, freqs_cis, dtype=torch.float32):  # BORN
    xq_ = torch.view_as_complex(xq.float().reshape(*xq.shape[:-1], -1, 2))
    xk_ = torch.view_as_complex(xk.float().reshape(*xk.shape[:-1], -1, 2))
    xq_out = torch.view_as_real(xq_ * freqs_cis[None, :, None, :]).reshape(xq.shape)
    xk_out = torch.view_as_real(xk_ * freqs_cis[None, :, None, :]).reshape(xk.shape)
    return xq_out.to(dtype), xk_out.to(dtype)  # BORN


def attention(x, w, cur_pos, layer_idx, freqs_cis, kvcache, heads, attn_mask=None):
    bsz, seqlen, dim = x.shape
    xq = F.linear(x, w["wq"]).reshape(bsz, seqlen, heads, dim // heads)
    xk = F.linear(x, w["wk"]).reshape(bsz, seqlen, heads, dim // heads)
    xv = F.linear(x, w["wv"]).reshape(bsz, seqlen, heads, dim // heads)
    xq, xk = apply_rotary_emb(xq, xk, freqs_cis)  # BORN
    keys, values = kvcache.update(xk, xv, layer_idx, cur_pos)
    scores = torch.einsum("bqhd,bkhd->bhqk", xq, keys) / math.sqrt(dim // heads)  # COLLIDES
    if attn_mask is not None:
        scores = scores + attn_mask
    scores = F.softmax(scores.float(), dim=-1).to(values.dtype)
    output = torch.einsum("bhqk,bkhd->bqhd", scores, values)
    return F.linear(output.reshape(bsz, seqlen, dim), w["wo"])


def main():
    torch.manual_seed(0)
    dim, heads, layers, seqlen, vocab = 32, 4, 2, 6, 50
    weights = [{n: (torch.randn(dim, dim) / math.sqrt(dim)).bfloat16() for n in ("wq", "wk", "wv", "wo")}
               for _ in range(layers)]
    norm, emb = torch.ones(dim, dtype=torch.bfloat16), torch.randn(vocab, dim).bfloat16()
    cache, freqs = KVCache(layers, 1, 16, heads, dim // heads), precompute_freqs_cis(dim // heads, 16)
    mask = torch.triu(torch.full((seqlen, seqlen), float("-inf")), diagonal=1)
    h = emb[torch.randint(0, vocab, (1, seqlen))]
    for i in range(layers):
        h = h + attention(rms_norm(h, norm), weights[i], 0, i, freqs[:seqlen], cache, heads, mask)
    logits = F.linear(rms_norm(h, norm), emb).float()
    print("next token", int(logits[0, -1].argmax()), f"logit {logits[0, -1].max().item():.3f}")


if __name__ == "__main__":
    main()
