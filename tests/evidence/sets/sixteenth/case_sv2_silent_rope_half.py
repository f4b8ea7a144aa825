"""
title: a decoder is halved after it was built and its rotary table is made from the halved buffer
expect: silent:precision-loss|downcast
thread: https://github.com/EleutherAI/gpt-neox/issues/1003
measured: notes read rightly 0%
widened: notes read rightly 100%

Expectation, written first: positions above 2048 and their products with the frequencies are rounded in float16;
the key one or two places away scores as high as the right one. The note book of values is float16 as well, which
does no harm: it holds small whole numbers.
"""
import torch
from torch import nn


class Rotary(nn.Module):
    def __init__(self, dim, base=10000.0):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / base ** (torch.arange(0, dim, 2) / dim))

    def forward(self, positions):
        t = positions.type_as(self.inv_freq)  # BORN
        freqs = torch.outer(t, self.inv_freq)
        return freqs.cos(), freqs.sin()


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Reader(nn.Module):
    """attends to the token a fixed distance back"""

    def __init__(self, dim, back):
        super().__init__()
        self.back = back
        self.probe = nn.Parameter(torch.randn(dim).sign())
        self.rotary = Rotary(dim)

    def forward(self, length, queries, notes):
        cos, sin = self.rotary(torch.arange(length))
        keys = rotate(self.probe.expand(length, -1), cos, sin)
        q_cos, q_sin = self.rotary(queries - self.back)
        q = rotate(self.probe.expand(len(queries), -1), q_cos, q_sin)
        weights = (3.0 * (q @ keys.T)).softmax(-1)
        return weights @ notes.float()


def main():
    torch.manual_seed(2)
    length, back = 8192, 37
    notes = torch.randint(0, 200, (length, 1)).half()
    reader = Reader(dim=64, back=back).half()  # BORN
    queries = torch.randint(6000, length, (256,))
    with torch.no_grad():
        read = reader(length, queries, notes)
    right = (read - notes[queries - back].float()).abs() < 0.5
    print(f"notes read rightly {100 * right.float().mean():.0f}%")


main()
