"""
title: The xpos scale promotes the rotated keys to float32, the queries stay bfloat16
expect: collision
thread: https://github.com/lucidrains/rotary-embedding-torch/pull/9
fix_at: (none beside the marked)

Expectation, written first: freqs are cast to the dtype of the tensors, but the xpos scale is a float32 power and
multiplies queries and keys. The queries are cast back (as in the half-mended release of the thread), the keys are not; q @ k^T
gets BFloat16 and Float and raises.
"""
import torch
import torch.nn as nn


def rotate_half(x):
    x1, x2 = x.unflatten(-1, (-1, 2)).unbind(dim=-1)
    return torch.stack((-x2, x1), dim=-1).flatten(-2)


def apply_rotary_emb(freqs, t, scale=1.0):
    return (t * freqs.cos() * scale) + (rotate_half(t) * freqs.sin() * scale)  # BORN


class RotaryEmbedding(nn.Module):
    def __init__(self, dim, theta=10000, use_xpos=False, xpos_scale_base=16):
        super().__init__()
        freqs = 1.0 / (theta ** (torch.arange(0, dim, 2).float() / dim))
        self.register_buffer("freqs", freqs, persistent=False)
        self.use_xpos = use_xpos
        self.scale_base = xpos_scale_base
        self.base_scale = (torch.arange(0, dim, 2) + 0.4 * dim) / (1.4 * dim)

    def get_freqs(self, n, dtype):
        freqs = torch.outer(torch.arange(n).float(), self.freqs.float())
        return freqs.repeat_interleave(2, dim=-1).to(dtype)

    def get_scale(self, n):
        power = (torch.arange(n) - n // 2) / self.scale_base
        scale = self.base_scale ** power[:, None]  # BORN
        return torch.cat((scale, scale), dim=-1)  # BORN

    def rotate_queries_and_keys(self, q, k):
        n = q.shape[-2]
        freqs = self.get_freqs(n, q.dtype)
        scale = self.get_scale(n)  # BORN
        rotated_q = apply_rotary_emb(freqs, q, scale=scale).to(q.dtype)
        rotated_k = apply_rotary_emb(freqs, k, scale=scale ** -1)  # BORN
        return rotated_q, rotated_k  # BORN


class Attention(nn.Module):
    def __init__(self, dim, heads, rotary_emb):
        super().__init__()
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.to_out = nn.Linear(dim, dim, bias=False)
        self.rotary_emb = rotary_emb

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.to_qkv(x).chunk(3, dim=-1))
        q, k = self.rotary_emb.rotate_queries_and_keys(q, k)  # BORN
        sim = torch.matmul(q * self.scale, k.transpose(-1, -2))  # COLLIDES
        causal = torch.ones(sim.shape[-2:], dtype=torch.bool).triu(1)
        attn = sim.masked_fill(causal, float("-inf")).softmax(dim=-1)
        return self.to_out((attn @ v).transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    def __init__(self, vocab, dim=32, depth=2, heads=4):
        super().__init__()
        self.token_emb = nn.Embedding(vocab, dim)
        rotary_emb = RotaryEmbedding(dim // heads, use_xpos=True)
        self.layers = nn.ModuleList(Attention(dim, heads, rotary_emb) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.to_logits = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.token_emb(ids)
        for attn in self.layers:
            x = attn(self.norm(x)) + x
        return self.to_logits(self.norm(x))


def main():
    torch.manual_seed(9)
    model = Transformer(vocab=30).to(torch.bfloat16)
    ids = torch.randint(0, 30, (2, 20))
    logits = model(ids[:, :-1])
    loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    print("loss", round(loss.item(), 2), "dtype", logits.dtype)


if __name__ == "__main__":
    main()
