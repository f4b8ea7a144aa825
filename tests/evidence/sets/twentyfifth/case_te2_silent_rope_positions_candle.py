"""
title: positions of the rotary table are rounded before the angles are formed
expect: silent:precision-loss|downcast
thread: https://github.com/huggingface/candle/pull/3520
measured: own position found: short 1.00 long 0.07
widened: own position found: short 1.00 long 1.00; innocent: own position found: short 1.00 long 0.07
suspect: 41 exact (1/8 is a power of two)

Expectation, written first: the table takes its positions and inverse frequencies in the model's bfloat16; beyond 256
neighbouring positions share one value, so a query no longer finds the key at its own place. Remedy: float32 for
positions, inverse frequencies and angles, the cast comes last. The bfloat16 attention scale is exact.
"""
import torch


class Config:
    head_dim = 64
    rope_theta = 10000.0
    max_position_embeddings = 4096
    dtype = torch.bfloat16


class RotaryEmbedding:
    def __init__(self, dtype, cfg):
        dim = cfg.head_dim
        inv_freq = 1.0 / cfg.rope_theta ** (torch.arange(0, dim, 2) / dim)
        inv_freq = inv_freq.to(dtype)  # BORN
        t = torch.arange(cfg.max_position_embeddings).to(dtype)  # BORN
        freqs = t[:, None] * inv_freq[None, :]  # BORN
        self.sin, self.cos = freqs.sin().float(), freqs.cos().float()

    def apply(self, x, positions):
        cos, sin = self.cos[positions], self.sin[positions]
        x1, x2 = x.chunk(2, dim=-1)
        return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], dim=-1)


class Attention:
    def __init__(self, cfg):
        self.rotary_emb = RotaryEmbedding(cfg.dtype, cfg)  # BORN
        self.scale = torch.tensor(cfg.head_dim ** -0.5, dtype=torch.bfloat16)

    def scores(self, q, k, q_pos, k_pos):
        q, k = self.rotary_emb.apply(q, q_pos), self.rotary_emb.apply(k, k_pos)
        return q @ k.T * self.scale


def find_self(attn, vector, positions, span=64):
    hits = 0
    for p in positions:
        window = torch.arange(p - span, p + span)
        scores = attn.scores(vector.expand(1, -1), vector.expand(len(window), -1), torch.tensor([p]), window)
        hits += int(window[scores[0].argmax()] == p)
    return hits / len(positions)


def main():
    torch.manual_seed(3520)
    attn = Attention(Config())
    vector = torch.ones(Config.head_dim)
    short = find_self(attn, vector, range(65, 190, 5))
    long = find_self(attn, vector, range(3000, 3900, 13))
    print(f"own position found: short {short:.2f} long {long:.2f}")


main()
