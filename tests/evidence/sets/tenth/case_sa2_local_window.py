"""
title: bucket positions of a local attention are counted in half, long sequences see the future
expect: silent:precision-loss|downcast
thread: https://github.com/pytorch/pytorch/issues/81926
measured: tokens that change an earlier output: 15 of 20
widened: tokens that change an earlier output: 0 of 20

Expectation, written first: beyond 2048 half holds only even numbers, then multiples of four;
the comparison that forbids later tokens lets some of them through.
"""
import torch
from torch import nn


class LocalAttention(nn.Module):
    def __init__(self, window=64, dim=16):
        super().__init__()
        self.window = window
        self.qk = nn.Linear(dim, 2 * dim, bias=False)

    def positions(self, x):
        return torch.arange(x.shape[1], dtype=x.dtype)  # BORN

    def forward(self, x):
        b, n, d = x.shape
        pos = self.positions(x).view(-1, self.window)
        back = torch.cat([pos.roll(1, 0), pos], -1)
        allowed = pos[:, :, None] >= back[:, None, :]
        allowed[0, :, :self.window] = False
        q, k = self.qk(x).view(b, -1, self.window, 2 * d).chunk(2, -1)
        k = torch.cat([k.roll(1, 1), k], 2)
        att = (q @ k.transpose(-1, -2) / d ** 0.5).masked_fill(~allowed, float("-inf")).softmax(-1)
        values = torch.cat([x.view(b, -1, self.window, d).roll(1, 1), x.view(b, -1, self.window, d)], 2)
        return (att @ values).reshape(b, n, d), allowed


@torch.no_grad()
def main(length=8192):
    torch.manual_seed(0)
    layer = LocalAttention().half()
    x = torch.randn(1, length, 16).half()
    out, _ = layer(x)
    changed = 0
    probes = torch.arange(length - 40, length, 2)
    for p in probes.tolist():
        y = x.clone()
        y[:, p] += 2
        changed += int((layer(y)[0][:, :p] != out[:, :p]).any())
    print(f"tokens that change an earlier output: {changed} of {len(probes)}")


main()
