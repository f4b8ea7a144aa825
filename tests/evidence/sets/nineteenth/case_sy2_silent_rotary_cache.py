"""
title: Rotary positions inherit bf16 from the cast inv_freq buffer and alias beyond 256
expect: silent:precision-loss|downcast|promotion
thread: https://github.com/nkalyanv99/UNI-D2/pull/6
measured: positions 0-256: previous token found 1.000 | positions 256-512: previous token found 0.504 | positions 512-1023: previous token found 0.250
widened: positions 0-256: previous token found 1.000 | positions 256-512: previous token found 1.000 | positions 512-1023: previous token found 1.000
innocent: positions 0-256: previous token found 1.000 | positions 256-512: previous token found 0.504 | positions 512-1023: previous token found 0.250
suspect: 34 bounded

Expectation, written first: model.to(bfloat16) also casts the inv_freq buffer, and the positions take its dtype by type_as, so from 256 on several
consecutive positions are one number and the phases are rounded. A head that must look at the previous token then picks wrong keys. The
cached cos and sin in bf16 look as bad but lie in [-1, 1] and leave the order of the scores alone.
"""
import torch
import torch.nn as nn


class Rotary(nn.Module):
    def __init__(self, dim, base=10_000):
        super().__init__()
        inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim))
        self.register_buffer("inv_freq", inv_freq)
        self.seq_len_cached = None
        self.cos_cached = None
        self.sin_cached = None

    def forward(self, x, seq_dim=1):
        seq_len = x.shape[seq_dim]
        if seq_len != self.seq_len_cached:
            self.seq_len_cached = seq_len
            t = torch.arange(seq_len).type_as(self.inv_freq)  # BORN
            freqs = torch.einsum("i,j->ij", t, self.inv_freq.clone())  # BORN
            emb = torch.cat((freqs, freqs), dim=-1)
            self.cos_cached = emb.cos().to(x.dtype)[None, :, None, :]
            self.sin_cached = emb.sin().to(x.dtype)[None, :, None, :]
        return self.cos_cached, self.sin_cached


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2:]
    return torch.cat((-x2, x1), dim=-1)


def apply_rotary_pos_emb(x, cos, sin):
    return x * cos + rotate_half(x) * sin


class PreviousTokenHead(nn.Module):
    def __init__(self, head_dim=64):
        super().__init__()
        self.rotary = Rotary(head_dim)
        self.content = nn.Parameter(torch.ones(head_dim))

    def forward(self, tokens):
        b, s = tokens.shape
        k = self.content.expand(b, s, 1, -1)
        cos, sin = self.rotary(k)
        k = apply_rotary_pos_emb(k, cos, sin)
        q = k.roll(1, dims=1)
        scores = torch.einsum("bqhd,bkhd->bhqk", q.float(), k.float()) / 8.0
        causal = torch.ones(s, s, dtype=torch.bool).tril(-1)
        return scores.masked_fill(~causal, float("-inf"))


def build_model(dtype):
    torch.manual_seed(0)
    model = PreviousTokenHead()
    return model.to(dtype)  # BORN


def main():
    model = build_model(torch.bfloat16)
    tokens = torch.randint(0, 100, (1, 1024))
    with torch.no_grad():
        scores = model(tokens)[0, 0, 1:]
    picked = scores.argmax(dim=-1)
    expected = torch.arange(0, 1023)
    for lo, hi in ((0, 256), (256, 512), (512, 1023)):
        acc = (picked[lo:hi] == expected[lo:hi]).float().mean()
        print(f"positions {lo}-{hi}: previous token found {acc:.3f}")


if __name__ == "__main__":
    main()
