"""
title: Rotary tables of float32 under a bfloat16 model
expect: collision
thread: https://github.com/EleutherAI/gpt-neox/issues/1305
fix_at: casting query and key after the rotation

Expectation, written first: the rotary embedding caches cos and sin in float32 and only knows how to turn them to
half. In bfloat16 the rotated query and key come back in float32 by promotion, the scores are float32, and
the product with the bfloat16 values raises.
"""
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class NeoXArgs:
    vocab: int = 64
    hidden_size: int = 32
    num_heads: int = 4
    num_layers: int = 2
    params_dtype: torch.dtype = torch.bfloat16


class RotaryEmbedding(nn.Module):
    def __init__(self, dim, base=10000, precision=torch.half):
        super().__init__()
        self.inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim))
        self.seq_len_cached = None
        self.precision = precision

    def forward(self, seq_len):
        if seq_len != self.seq_len_cached:
            self.seq_len_cached = seq_len
            t = torch.arange(seq_len).type_as(self.inv_freq)
            freqs = torch.einsum("i,j->ij", t, self.inv_freq)
            emb = torch.cat((freqs, freqs), dim=-1)
            self.cos_cached = emb.cos()[:, None, None, :]  # BORN
            self.sin_cached = emb.sin()[:, None, None, :]  # BORN
            if self.precision == torch.half:  # BORN
                self.cos_cached, self.sin_cached = self.cos_cached.half(), self.sin_cached.half()
        return self.cos_cached, self.sin_cached  # BORN


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


def apply_rotary_pos_emb(q, k, cos, sin):
    return (q * cos) + (rotate_half(q) * sin), (k * cos) + (rotate_half(k) * sin)  # BORN


class ParallelSelfAttention(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.heads, self.head_dim = args.num_heads, args.hidden_size // args.num_heads
        self.query_key_value = nn.Linear(args.hidden_size, 3 * args.hidden_size)
        self.dense = nn.Linear(args.hidden_size, args.hidden_size)
        self.rotary_emb = RotaryEmbedding(self.head_dim, precision=args.params_dtype)

    def forward(self, hidden_states):
        s, b, _ = hidden_states.shape
        mixed = self.query_key_value(hidden_states).view(s, b, self.heads, 3 * self.head_dim)
        q, k, v = mixed.chunk(3, dim=-1)
        cos, sin = self.rotary_emb(s)
        q, k = apply_rotary_pos_emb(q, k, cos, sin)  # BORN
        q, k, v = (t.permute(1, 2, 0, 3).reshape(b * self.heads, s, -1) for t in (q, k, v))
        scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(self.head_dim)
        scores = scores.masked_fill(torch.ones(s, s, dtype=torch.bool).triu(1), -1e4)
        context = torch.bmm(scores.softmax(dim=-1), v)  # COLLIDES
        return self.dense(context.view(b, self.heads, s, -1).permute(2, 0, 1, 3).reshape(s, b, -1))


class GPT2ModelPipe(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.embedding = nn.Embedding(args.vocab, args.hidden_size)
        self.norms = nn.ModuleList(nn.LayerNorm(args.hidden_size) for _ in range(args.num_layers))
        self.layers = nn.ModuleList(ParallelSelfAttention(args) for _ in range(args.num_layers))
        self.to(args.params_dtype)

    def forward(self, tokens):
        x = self.embedding(tokens.t())
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x))
        return F.linear(x, self.embedding.weight).transpose(0, 1)


if __name__ == "__main__":
    torch.manual_seed(1305)
    model = GPT2ModelPipe(NeoXArgs())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        tokens = torch.randint(0, 64, (2, 13))
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("step", step, "loss", round(loss.item(), 2))
