"""
title: contrastive loss over gathered half features sums exponentials in half
expect: silent:overflow
thread: https://github.com/openai/CLIP/pull/530
measured: losses: [inf, inf, inf]
widened: losses: [36.27, 38.86, 35.82]

Expectation, written first: with a logit scale of 100 an exponential of a similarity
above 0.11 exceeds 65504, so the denominator is inf and so is the loss. The features are
gathered in half, which changes the loss in the third digit only.
"""
import math

import torch
from torch import nn


class Tower(nn.Module):
    def __init__(self, inp, dim=32):
        super().__init__()
        self.proj = nn.Sequential(nn.Linear(inp, 48), nn.GELU(), nn.Linear(48, dim))

    def forward(self, x):
        return nn.functional.normalize(self.proj(x), dim=-1)


class Gather:
    """Stands for the all_gather of the features, which travel in a small dtype."""

    def __call__(self, feats):
        return feats.half().float()


def info_nce(img, txt, scale):
    logits = scale * img @ txt.t()
    positives = logits.diagonal()
    denom = logits.half().exp().sum(1)  # BORN
    return (denom.log().float() - positives).mean()


def main():
    torch.manual_seed(0)
    image_tower, text_tower = Tower(20), Tower(12)
    gather = Gather()
    scale = math.exp(math.log(100.0))
    losses = []
    for step in range(3):
        latent = torch.randn(64, 12)
        img = gather(image_tower(torch.cat([latent, torch.randn(64, 8)], 1)))
        txt = gather(text_tower(latent))
        loss = info_nce(img, txt, scale)
        losses.append(round(loss.item(), 2))
    print("losses:", losses)


main()
