"""
title: the expanded distance of a VQ codebook cancels in float32 and the nearest code is picked at random
expect: silent:cancellation|precision-loss
thread: https://github.com/lucidrains/vector-quantize-pytorch/issues/106
measured: codes recovered 0.030 ; commit loss 1.97e-04, zero distances 12833 ; codes in use 8, counted 640
widened: codes recovered 1.000 ; commit loss 1.00e-06, zero distances 0 ; codes in use 32, counted 640
innocent: codes recovered 0.030 ; commit loss 1.97e-04, zero distances 12833 ; codes in use 8, counted 640
suspect: 40 exact (ones and zeros, and they are summed in float32)

Expectation, written first: cdist expands (x-y)^2 into x^2 + y^2 - 2xy. With features that sit near 300 the squares are six million and a step of
float32 is a half, while codes lie a few hundredths apart, so the difference is rounding noise, clamped at zero, and the argmin takes a wrong
code. The one-hot that counts the usage is bfloat16, which would stop at 256, but its sum asks for float32.
"""
import torch
import torch.nn.functional as F
from torch import nn


def cdist(x, y):
    x2 = (x ** 2).sum(-1)
    y2 = (y ** 2).sum(-1)
    xy = x @ y.t() * -2
    return (x2[:, None] + y2[None, :] + xy).clamp(min=0).sqrt()  # BORN


class EuclideanCodebook(nn.Module):
    def __init__(self, dim, codebook_size, decay=0.8):
        super().__init__()
        self.decay = decay
        self.codebook_size = codebook_size
        self.register_buffer("embed", torch.zeros(codebook_size, dim))
        self.register_buffer("cluster_size", torch.zeros(codebook_size))

    def init_embed(self, samples):
        self.embed.copy_(samples)

    def forward(self, x):
        dist = cdist(x, self.embed)
        ind = dist.argmin(-1)
        onehot = F.one_hot(ind, self.codebook_size).to(torch.bfloat16)
        bins = onehot.sum(0, dtype=torch.float32)
        self.cluster_size.lerp_(bins, 1 - self.decay)
        return self.embed[ind], ind, dist


class VectorQuantize(nn.Module):
    def __init__(self, dim, codebook_size):
        super().__init__()
        self._codebook = EuclideanCodebook(dim, codebook_size)

    def forward(self, x):
        quantize, ind, dist = self._codebook(x)
        commit = F.mse_loss(quantize.detach(), x)
        return x + (quantize - x).detach(), ind, commit, dist


def main():
    torch.manual_seed(0)
    dim, codes = 64, 32
    base = 300 + torch.randn(1, dim)
    embed = base + 0.01 * torch.randn(codes, dim)
    vq = VectorQuantize(dim, codes)
    vq._codebook.init_embed(embed)
    truth = torch.arange(codes).repeat(20)
    x = embed[truth] + 0.001 * torch.randn(len(truth), dim)
    _, ind, commit, dist = vq(x)
    used = int((vq._codebook.cluster_size > 0).sum())
    print(f"codes recovered {float((ind == truth).float().mean()):.3f}")
    print(f"commit loss {float(commit):.2e}, zero distances {int((dist == 0).sum())}")
    print(f"codes in use {used}, counted {float(vq._codebook.cluster_size.sum() / 0.2):.0f}")


main()
