"""
title: style loss from Gram matrices of wide feature maps
expect: silent:overflow|downcast
thread: https://github.com/ProGamerGov/neural-style-pt/issues/97
measured: style loss nan, gradient norm nan
widened: style loss 7.576e+04, gradient norm 173.5
fix_at: 40

Expectation, written first: the features are halved to save memory and the Gram sums
over all positions pass 65504 before they are divided by the size; the loss is inf or nan.
BORN is the cast of the feature maps to half; float32 gives a finite loss.
"""
import torch
from torch import nn


class Features(nn.Module):
    """A small stack in place of the usual image network."""

    def __init__(self, width=16, stages=2):
        super().__init__()
        layers, fan_in = [], 3
        for _ in range(stages):
            layers.append(nn.Sequential(nn.Conv2d(fan_in, width, 3, padding=1), nn.ReLU()))
            fan_in = width
        self.stages = nn.ModuleList(layers)

    def forward(self, image):
        maps, x = [], image
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps


class GramMatrix(nn.Module):
    def forward(self, maps):
        feats = maps.flatten(2)[0]
        feats = feats.half()  # BORN
        gram = feats @ feats.t()
        return gram / feats.shape[1]


class StyleLoss(nn.Module):
    def __init__(self, features, style):
        super().__init__()
        self.features, self.gram = features, GramMatrix()
        with torch.no_grad():
            self.targets = [self.gram(m) for m in features(style)]

    def forward(self, image):
        terms = [nn.functional.mse_loss(self.gram(m).float(), t.float())
                 for m, t in zip(self.features(image), self.targets)]
        return torch.stack(terms).sum()


def stripes(size, period):
    x = torch.arange(size).float()
    wave = 127 + 120 * torch.sin(2 * torch.pi * x / period)
    return wave.expand(1, 3, size, size).clone()


def main():
    torch.manual_seed(0)
    features = Features().eval()
    for p in features.parameters():
        p.requires_grad_(False)
    loss_fn = StyleLoss(features, stripes(96, 12))
    image = stripes(96, 31).requires_grad_(True)
    loss = loss_fn(image)
    loss.backward()
    print("style loss %.4g, gradient norm %.4g" % (loss.item(), image.grad.norm().item()))


if __name__ == "__main__":
    main()
