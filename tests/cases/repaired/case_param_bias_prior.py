"""
title: one bias replaced by a prior in the dtype of its layer
expect: clean

Input, weight and bias are bfloat16.
"""
import math

import torch
from torch import nn


class Detector(nn.Module):
    def __init__(self, channels=16, classes=4):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.box = nn.Conv2d(channels, 4, 1)
        self.score = nn.Conv2d(channels, classes, 1)

    def forward(self, image):
        shared = self.stem(image)
        box = self.box(shared).exp()
        score = self.score(shared)
        return box, score.sigmoid()


def set_prior(layer, probability):
    logit = -math.log((1 - probability) / probability)
    layer.bias = nn.Parameter(torch.full((layer.out_channels,), logit, dtype=layer.weight.dtype))


def build(dtype):
    torch.manual_seed(0)
    detector = Detector().to(dtype)
    nn.init.normal_(detector.score.weight, std=0.01)
    set_prior(detector.score, 0.01)
    return detector


if __name__ == "__main__":
    half = torch.bfloat16
    detector = build(half)
    box, score = detector(torch.rand(2, 3, 16, 16, dtype=half))
    print(box.shape, score.mean().item())
