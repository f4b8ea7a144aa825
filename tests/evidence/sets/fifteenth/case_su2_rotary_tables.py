"""
title: the cached sine and cosine tables of a rotary layer are made in the dtype of the model
expect: silent:precision-loss|downcast
thread: https://github.com/EleutherAI/gpt-neox/issues/1003
measured: heads that look at the right token: short 100.0%, long 8.4%
widened: heads that look at the right token: short 100.0%, long 100.0%

Expectation, written first: position times frequency is rounded to bfloat16 before the sine, and so are positions
above 256, so heads that look a fixed distance back look at the wrong token. The bfloat16 causal
mask of zeros and -10000 only ever removes the future and is harmless.
"""
import torch
from torch import nn


class Rotary(nn.Module):
    def __init__(self, dim, base=10000):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim)))
        self.length = 0

    def forward(self, length):
        if length > self.length:
            self.length = length
            t = torch.arange(length).type_as(self.inv_freq)  # BORN
            freqs = torch.einsum("i,j->ij", t, self.inv_freq)  # BORN
            self.cos, self.sin = freqs.cos(), freqs.sin()
        return self.cos[:length], self.sin[:length]


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class LookBack(nn.Module):
    """an attention layer whose heads were trained to find the token `back` places ago"""

    def __init__(self, dim, heads_back):
        super().__init__()
        self.rotary = Rotary(dim)
        self.back = heads_back
        content = torch.ones(dim)
        freq = self.rotary.inv_freq
        turned = [rotate(content, (-freq * b).cos(), (-freq * b).sin()) for b in heads_back]
        self.query = nn.Parameter(torch.stack(turned))
        self.key = nn.Parameter(content.repeat(len(heads_back), 1))

    def forward(self, length):
        cos, sin = self.rotary(length)
        q = rotate(self.query[:, None].expand(-1, length, -1), cos, sin)
        k = rotate(self.key[:, None].expand(-1, length, -1), cos, sin)
        scores = q.float() @ k.float().transpose(-1, -2)
        mask = torch.full((length, length), -10000.0, dtype=torch.bfloat16).triu(1)
        return (scores + mask).argmax(-1)


def evaluate(layer, length, skip):
    found = layer(length)
    rows = torch.arange(skip, length)
    right = torch.stack([found[h, skip:] == rows - b for h, b in enumerate(layer.back)])
    return right.double().mean().item()


@torch.no_grad()
def main():
    layer = LookBack(64, heads_back=[1, 7, 40])
    layer.bfloat16()  # BORN
    print(f"heads that look at the right token: short {100 * evaluate(layer, 64, 40):.1f}%,"
          f" long {100 * evaluate(layer, 2048, 1024):.1f}%")


main()
