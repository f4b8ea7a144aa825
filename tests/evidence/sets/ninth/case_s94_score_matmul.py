"""
title: eager attention multiplies half queries and keys before scaling, then half probabilities
expect: silent:overflow
thread: https://github.com/huggingface/transformers/pull/17437
measured: tokens without a finite output: 100 %
widened: tokens without a finite output: 0 %

Expectation, written first: unscaled half scores of an outlier head leave the half range
and the softmax of inf is NaN. The second matmul is in half as well, where everything is
below one; only the first decision matters.
"""
import torch
from torch import nn


class EagerAttention(nn.Module):
    def __init__(self, dim=64, heads=2):
        super().__init__()
        self.heads = heads
        self.q, self.k = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.v, self.o = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def split(self, x):
        b, t, d = x.shape
        return x.view(b, t, self.heads, -1).transpose(1, 2)

    def forward(self, x, mask):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = q.half() @ k.half().transpose(-1, -2)  # BORN
        scores = scores.float() / q.shape[-1] ** 0.5 + mask
        probs = scores.softmax(-1)
        y = probs.half() @ v.half()
        y = y.float().transpose(1, 2).reshape(x.shape)
        return self.o(y)


def with_outlier_head(layer, gain=14.0):
    with torch.no_grad():
        for lin in (layer.q, layer.k):
            lin.weight[: lin.weight.shape[0] // 2].mul_(gain)
            lin.bias[: lin.bias.shape[0] // 2] += 50
    return layer


def causal(n):
    return torch.triu(torch.full((n, n), -1e4), 1)


@torch.no_grad()
def main():
    torch.manual_seed(0)
    layer = with_outlier_head(EagerAttention())
    x = torch.randn(2, 24, 64) * 2
    out = layer(x, causal(24))
    bad = (~torch.isfinite(out)).any(-1).double().mean().item()
    print(f"tokens without a finite output: {100 * bad:.0f} %")


main()
