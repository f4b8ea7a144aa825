"""
title: int8 attention products: accumulated in int32 and requantised, no overflow
expect: clean
thread: https://github.com/NVIDIA/FasterTransformer/issues/119
measured: cosine to the float attention 1.000, output norm 4.37  (with float64 in its place: cosine to the float attention 1.000, output
    norm 4.37)
suspect: 50 int8 scores: scaled (accumulated in int32, brought into range before the cast)

Expectation, written first: Queries and keys are int8 and the scores are written back as int8, which looks like an overflow of the
    product. The product is taken in int32 and scaled into the int8 range by the calibrated maximum before the cast, so the attention
    agrees with float64 up to one quantisation step.
"""
import torch
from torch import nn


class Calibrator:
    def __init__(self):
        self.amax = {}

    def observe(self, name, x):
        self.amax[name] = max(self.amax.get(name, 0.0), x.abs().max().item())

    def scale(self, name):
        return self.amax[name] / 127


def quantize(x, scale):
    return torch.round(x / scale).clamp(-127, 127).to(torch.int8)


class FusedInt8Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.hd = heads, dim // heads
        self.q, self.k, self.v = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.calib, self.int8 = Calibrator(), False

    def split(self, x):
        return x.view(x.shape[0], self.heads, self.hd).transpose(0, 1)

    def scores(self, q, k):
        if not self.int8:
            s = q @ k.transpose(-1, -2)
            for name, t in (("q", q), ("k", k), ("s", s)):
                self.calib.observe(name, t)
            return s
        sq, sk, ss = (self.calib.scale(n) for n in "qks")
        acc = quantize(q, sq).to(torch.int32) @ quantize(k, sk).to(torch.int32).transpose(-1, -2)
        out = quantize(acc.float() * (sq * sk), ss)
        return out.float() * ss

    def forward(self, x):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        p = torch.softmax(self.scores(q, k) / self.hd**0.5, dim=-1)
        return (p @ v).transpose(0, 1).reshape(x.shape)


torch.manual_seed(0)
attn, x = FusedInt8Attention(64, 4), torch.randn(80, 64)
with torch.no_grad():
    ref = attn(x)
    attn.int8 = True
    out = attn(x)
cosine = nn.functional.cosine_similarity(ref, out, dim=-1)
print(f"cosine to the float attention {cosine.mean():.3f}, output norm {out.norm():.2f}")
