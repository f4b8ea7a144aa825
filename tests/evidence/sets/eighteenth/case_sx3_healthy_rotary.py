"""
title: Megatron rotary phases stay float32 in a bfloat16 model, their cos and sin are rounded at the multiplication
expect: clean
thread: https://github.com/NVIDIA/Megatron-LM/issues/744
measured: cos error within half a step: True, loss finite: True
suspect: 40 bounded

Expectation, written first: the model is cast to bfloat16, but inv_freq is a plain attribute and keeps float32, so the
phases of all positions are float32. apply_rotary_pos_emb rounds only the finished cos and sin, which lie in [-1, 1], to
the dtype of the query; their error is half a bfloat16 step and not a wrong angle.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class RotaryEmbedding(nn.Module):
    def __init__(self, kv_channels, rotary_percent=1.0, seq_len_interpolation_factor=None, rotary_base=10000):
        super().__init__()
        dim = int(kv_channels * rotary_percent)
        self.seq_len_interpolation_factor = seq_len_interpolation_factor
        self.inv_freq = 1.0 / (rotary_base ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim))

    def forward(self, max_seq_len, offset=0):
        seq = torch.arange(max_seq_len, device=self.inv_freq.device, dtype=self.inv_freq.dtype) + offset
        if self.seq_len_interpolation_factor is not None:
            seq *= 1 / self.seq_len_interpolation_factor
        freqs = torch.outer(seq, self.inv_freq)
        return torch.cat((freqs, freqs), dim=-1)[:, None, None, :]


def _rotate_half(x):
    x1, x2 = torch.chunk(x, 2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


def apply_rotary_pos_emb(t, freqs):
    cos_, sin_ = torch.cos(freqs).to(t.dtype), torch.sin(freqs).to(t.dtype)
    return (t * cos_) + (_rotate_half(t) * sin_)


class SelfAttention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads, self.head_dim = heads, hidden // heads
        self.linear_qkv, self.linear_proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)

    def forward(self, hidden_states, rotary_pos_emb):
        s, b, h = hidden_states.shape
        q, k, v = self.linear_qkv(hidden_states).view(s, b, self.heads, 3 * self.head_dim).chunk(3, -1)
        q, k = apply_rotary_pos_emb(q, rotary_pos_emb), apply_rotary_pos_emb(k, rotary_pos_emb)
        scores = torch.einsum("sbhd,tbhd->bhst", q, k) / math.sqrt(self.head_dim)
        mask = torch.ones(s, s, dtype=torch.bool).triu(1)
        probs = scores.float().masked_fill(mask, -10000.0).softmax(-1).to(v.dtype)
        return self.linear_proj(torch.einsum("bhst,tbhd->sbhd", probs, v).reshape(s, b, h))


class GPTModel(nn.Module):
    def __init__(self, vocab=64, hidden=64, heads=2, layers=2):
        super().__init__()
        self.embedding, self.output_layer = nn.Embedding(vocab, hidden), nn.Linear(hidden, vocab, bias=False)
        self.rotary_pos_emb = RotaryEmbedding(hidden // heads)
        self.layers = nn.ModuleList(SelfAttention(hidden, heads) for _ in range(layers))

    def forward(self, input_ids):
        h = self.embedding(input_ids).transpose(0, 1)
        rotary_pos_emb = self.rotary_pos_emb(h.shape[0])
        for layer in self.layers:
            h = h + layer(F.layer_norm(h, h.shape[-1:]), rotary_pos_emb)
        return self.output_layer(h.transpose(0, 1)).float()


if __name__ == "__main__":
    torch.manual_seed(0)
    model = GPTModel().to(torch.bfloat16).eval()
    ids = torch.randint(0, 64, (1, 1024))
    with torch.no_grad():
        loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        used = model.rotary_pos_emb(1024)[:, 0, 0, :16].cos().to(torch.bfloat16)
    inv_freq = 1.0 / (10000 ** (torch.arange(0, 32, 2).double() / 32))
    exact = torch.outer(torch.arange(1024).double(), inv_freq).cos()
    err = (used.double() - exact).abs().max().item()
    print(f"cos error within half a step: {err <= 2**-9 + 1e-4}, loss finite: {bool(loss.isfinite())}")
