"""
title: features of long recordings are normalised over their valid frames in half
expect: silent:overflow|precision-loss
thread: https://github.com/vadimkantorov/convasr/pull/73
measured: frame errors by length [0.0, 0.1, 79.7, 80.2] %
widened: frame errors by length [0.0, 0.1, 0.1, 0.1] %

Expectation, written first: the sum over thousands of frames passes the range of half and the mean is minus infinity
or badly rounded; short recordings are fine, long ones decode to nothing.
"""
import torch
from torch import nn


def temporal_mask(x, lengths):
    return torch.arange(x.shape[-1]) < lengths[:, None, None]


class MaskedInstanceNorm(nn.Module):
    def __init__(self, eps=1e-3):
        super().__init__()
        self.eps = eps

    def forward(self, x, mask):
        count = mask.sum(-1, keepdim=True)
        mean = (x * mask).sum(-1, keepdim=True) / count  # BORN
        centred = (x - mean) * mask
        var = (centred.float() ** 2).sum(-1, keepdim=True) / count
        return centred * torch.rsqrt(var + self.eps).to(x.dtype)


class Recognizer(nn.Module):
    def __init__(self, prototypes):
        super().__init__()
        self.norm = MaskedInstanceNorm()
        self.register_buffer("prototypes", prototypes)

    def forward(self, feats, lengths):
        x = self.norm(feats, temporal_mask(feats, lengths))
        return torch.einsum("kc,bct->bkt", self.prototypes.float(), x.float()).argmax(1)


def recordings(lengths, gen, classes=5, bands=16):
    prototypes = torch.randn(classes, bands, generator=gen)
    feats = torch.zeros(len(lengths), bands, max(lengths))
    labels = torch.full((len(lengths), max(lengths)), -1)
    for i, n in enumerate(lengths):
        labels[i, :n] = torch.randint(0, classes, (n,), generator=gen)
        noise = 0.7 * torch.randn(bands, n, generator=gen)
        feats[i, :, :n] = prototypes[labels[i, :n]].t() + noise - 11.0
    return prototypes, feats, torch.tensor(lengths), labels


def main():
    gen = torch.Generator().manual_seed(0)
    prototypes, feats, lengths, labels = recordings([400, 1500, 8000, 12000], gen)
    model = Recognizer(prototypes - prototypes.mean(0)).half().eval()
    with torch.inference_mode():
        got = model(feats.half(), lengths)
    rates = []
    for i, n in enumerate(lengths.tolist()):
        rates.append(round(100 * (got[i, :n] != labels[i, :n]).double().mean().item(), 1))
    print(f"frame errors by length {rates} %")


main()
