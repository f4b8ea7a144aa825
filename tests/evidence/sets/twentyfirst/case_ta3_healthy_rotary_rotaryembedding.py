"""
title: rotary attention under bfloat16 autocast with the angles computed outside of it in float32
expect: clean
thread: https://github.com/lucidrains/rotary-embedding-torch/issues/46
measured: loss 3.3 logit std 0.5
suspect: 41 rounding-only: the rotation is done in float32, the rotated queries are rounded once to the attention's dtype

Expectation, written first: the model trains under bfloat16 autocast with float32 weights; positions start at 8192,
where bfloat16 could not tell neighbours apart, but the angle product, cosines and the rotation run with autocast
off in float32. Only the rotated q and k are rounded to bfloat16. Loss and accuracy are those without autocast to
two digits.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

AUTOCAST = True


def rotate_half(x):
    x1, x2 = x[..., ::2], x[..., 1::2]
    return torch.stack((-x2, x1), dim=-1).flatten(-2)


class RotaryEmbedding(nn.Module):
    def __init__(self, dim, theta=10000.0):
        super().__init__()
        self.register_buffer("freqs", theta ** -(torch.arange(0, dim, 2).float() / dim))

    def forward(self, positions):
        with torch.autocast("cpu", enabled=False):
            angles = positions.float()[:, None] @ self.freqs.float()[None, :]
            return angles.repeat_interleave(2, dim=-1)

    def rotate_queries_or_keys(self, t, offset):
        dtype = t.dtype
        freqs = self.forward(torch.arange(t.shape[-2], device=t.device) + offset)
        with torch.autocast("cpu", enabled=False):
            t = t.float()
            out = t * freqs.cos() + rotate_half(t) * freqs.sin()
        return out.to(dtype)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.rotary_emb = RotaryEmbedding(dim // heads)
        self.to_qkv, self.to_out = nn.Linear(dim, dim * 3, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, x, offset):
        b, n, d = x.shape
        q, k, v = self.to_qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q = self.rotary_emb.rotate_queries_or_keys(q, offset)
        k = self.rotary_emb.rotate_queries_or_keys(k, offset)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.to_out(out.transpose(1, 2).reshape(b, n, d))


class RotaryLM(nn.Module):
    def __init__(self, vocab=24, dim=48, depth=2):
        super().__init__()
        self.token_emb = nn.Embedding(vocab, dim)
        self.attns = nn.ModuleList([Attention(dim, 4) for _ in range(depth)])
        self.norms = nn.ModuleList([nn.LayerNorm(dim) for _ in range(depth + 1)])
        self.to_logits = nn.Linear(dim, vocab)

    def forward(self, ids, offset=0):
        x = self.token_emb(ids)
        for attn, norm in zip(self.attns, self.norms):
            x = x + attn(norm(x), offset)
        return self.to_logits(self.norms[-1](x))


if __name__ == "__main__":
    torch.manual_seed(0)
    model = RotaryLM()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(20):
        half = torch.randint(0, 24, (8, 8))
        ids = torch.cat([half, half], dim=1)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=AUTOCAST):
            logits = model(ids[:, :-1], offset=8192)
        loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", f"{loss.item():.1f}", "logit std", f"{logits.float().std().item():.1f}")
