"""
title: a rotary cache takes its positions in the dtype of a buffer that the model's cast has made bf16
expect: silent:precision-loss|downcast
thread: https://github.com/nkalyanv99/UNI-D2/pull/6
measured: positions 1-256: 100% right, positions 256-512: 25% right, positions 512-1024: 25% right
widened: positions 1-256: 100% right, positions 256-512: 100% right, positions 512-1024: 100% right

Expectation, written first: bf16 has no odd integer above 256, so from there on neighbouring positions share a rotation
and a head that looks at the previous token no longer finds it. The cos and sin tables handed out in bf16 make no
difference.
"""
import torch
from torch import nn


class Rotary(nn.Module):
    def __init__(self, head_dim, base=10000.0):
        super().__init__()
        inv_freq = 1.0 / (base ** (torch.arange(0, head_dim, 2).float() / head_dim))
        self.register_buffer("inv_freq", inv_freq, persistent=False)
        self.cached, self.length = None, 0

    def forward(self, x, length):
        if length > self.length:
            t = torch.arange(length).type_as(self.inv_freq)  # BORN
            freqs = t[:, None] * self.inv_freq[None, :]
            self.cached = (freqs.cos().to(x.dtype), freqs.sin().to(x.dtype))
            self.length = length
        cos, sin = self.cached
        return cos[:length], sin[:length]


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class PreviousTokenHead(nn.Module):
    """one attention head whose query and key do not depend on the content: it reads the token before"""

    def __init__(self, dim=64):
        super().__init__()
        self.rotary = Rotary(dim)
        self.key = nn.Parameter(torch.ones(dim))
        self.query = nn.Parameter(torch.ones(dim))
        with torch.no_grad():
            freqs = self.rotary.inv_freq
            self.query.copy_(rotate(torch.ones(1, dim), freqs.cos(), -freqs.sin())[0])

    def forward(self, length):
        cos, sin = self.rotary(self.key, length)
        cos, sin = cos.float(), sin.float()
        q = rotate(self.query.float().expand(length, -1), cos, sin)
        k = rotate(self.key.float().expand(length, -1), cos, sin)
        scores = q @ k.T
        return scores.masked_fill(torch.ones(length, length).triu(1).bool(), float("-inf"))


class OrderProbe:
    """how often the best key is the one just before the query"""

    def __init__(self, head):
        self.head = head

    @torch.no_grad()
    def report(self, length=1024, edges=(1, 256, 512, 1024)):
        best = self.head(length).argmax(-1)
        right = (best == torch.arange(length) - 1).double()
        return {f"{a}-{b}": right[a:b].mean().item() for a, b in zip(edges[:-1], edges[1:])}


def load(dtype):
    torch.manual_seed(0)
    return PreviousTokenHead().to(dtype).eval()


result = OrderProbe(load(torch.bfloat16)).report()
print(", ".join(f"positions {k}: {100 * v:.0f}% right" for k, v in result.items()))
