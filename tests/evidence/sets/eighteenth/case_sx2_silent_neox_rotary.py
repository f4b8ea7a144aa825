"""
title: rotary tables computed in half: the score of a fixed distance changes with the position
expect: silent:precision-loss|downcast
thread: https://github.com/EleutherAI/gpt-neox/issues/1003
measured: score at distance 4: start 0.153 +- 0.001, end 0.170 +- 0.107
widened: score at distance 4: start 0.153 +- 0.001, end 0.153 +- 0.001
innocent: score at distance 4: start 0.153 +- 0.001, end 0.170 +- 0.107
suspect: line 57 harmless (32 products, rounded to a part in a thousand)

Expectation, written first: the inverse frequencies are brought to half and the outer product with the positions is formed
in half as well; above 1024 a half has steps of one radian, so cos and sin of the fast features are noise and the score of
two tokens four apart is no longer the same everywhere. The half dot product itself costs next to nothing.
"""
import torch
import torch.nn as nn


class RotaryEmbedding(nn.Module):
    def __init__(self, dim, max_seq_len, base=10000, precision=torch.half):
        super().__init__()
        inv_freq = (1.0 / (base ** (torch.arange(0, dim, 2).float() / dim))).to(precision)  # BORN
        self.register_buffer("inv_freq", inv_freq, persistent=False)
        self.max_seq_len = max_seq_len
        self.precision = precision
        self.cos_cached, self.sin_cached = self._prepare_cache(max_seq_len)

    def _prepare_cache(self, seq_len):
        t = torch.arange(seq_len).type_as(self.inv_freq)
        freqs = torch.einsum("i,j->ij", t, self.inv_freq)  # BORN
        emb = torch.cat((freqs, freqs), dim=-1)
        return emb.cos().to(self.precision), emb.sin().to(self.precision)

    def forward(self, seq_len):
        return self.cos_cached[:seq_len], self.sin_cached[:seq_len]


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2:]
    return torch.cat((-x2, x1), dim=-1)


def apply_rotary_pos_emb(x, cos, sin):
    return (x * cos) + (rotate_half(x) * sin)


class ParallelSelfAttention(nn.Module):
    def __init__(self, hidden, max_seq_len, params_dtype):
        super().__init__()
        self.query = nn.Linear(hidden, hidden, bias=False, dtype=params_dtype)
        self.key = nn.Linear(hidden, hidden, bias=False, dtype=params_dtype)
        self.rotary_emb = RotaryEmbedding(hidden, max_seq_len, precision=params_dtype)  # BORN

    def scores_at_distance(self, hidden_states, distance):
        cos, sin = self.rotary_emb(hidden_states.shape[0])
        q = apply_rotary_pos_emb(self.query(hidden_states), cos, sin)[distance:]
        k = apply_rotary_pos_emb(self.key(hidden_states), cos, sin)[:-distance]
        scores = (q * k).sum(-1)
        return scores.float()


def main():
    torch.manual_seed(0)
    attention = ParallelSelfAttention(hidden=32, max_seq_len=2048, params_dtype=torch.half)
    token = torch.randn(1, 32).half()
    with torch.no_grad():
        scores = attention.scores_at_distance(token.expand(2048, -1), distance=4)
    head, tail = scores[:100], scores[-1000:]
    print(f"score at distance 4: start {head.mean():.3f} +- {head.std():.3f}, end {tail.mean():.3f} +- {tail.std():.3f}")


main()
