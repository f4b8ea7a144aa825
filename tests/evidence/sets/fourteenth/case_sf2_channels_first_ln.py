"""
title: the channels-first layer norm of a ConvNet is run in half precision at inference
expect: silent:overflow
thread: https://github.com/facebookresearch/ConvNeXt/issues/80
measured: top-1 17.7%, largest logit 0.00
widened: top-1 100.0%, largest logit 3.85

Expectation, written first: in the last stage some channels are several hundred above the mean; their squares are larger
than 65504, the variance is infinite and the normalised features are zero, so that all images get one class. The images
are rounded to bfloat16 first, which has no influence on the class.
"""
import torch
from torch import nn


class LayerNormFirst(nn.Module):
    def __init__(self, channels, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x):
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)  # BORN
        x = (x - u) / torch.sqrt(s + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class TinyConvNeXt(nn.Module):
    def __init__(self, classes=4, width=16):
        super().__init__()
        self.stem = nn.Conv2d(classes, width, 4, 4)
        self.norm = LayerNormFirst(width)
        self.head = nn.Linear(width, classes)
        with torch.no_grad():
            self.stem.weight.zero_()
            self.stem.bias.zero_()
            self.head.weight.zero_()
            self.head.bias.zero_()
            for k in range(classes):
                self.stem.weight[k, k] = 60.0
                self.head.weight[k, k] = 1.0

    def forward(self, x):
        x = self.norm(self.stem(x))
        return self.head(x.mean((2, 3)))


def images(n, gen, classes=4):
    label = torch.randint(0, classes, (n,), generator=gen)
    picture = 0.1 * torch.rand(n, classes, 16, 16, generator=gen)
    picture[torch.arange(n), label] += 0.6
    return picture, label


def main():
    gen = torch.Generator().manual_seed(2)
    model = TinyConvNeXt().half().eval()  # BORN
    right = total = 0
    with torch.no_grad():
        for _ in range(6):
            picture, label = images(32, gen)
            logits = model(picture.to(torch.bfloat16).to(model.head.weight.dtype))
            right += (logits.argmax(1) == label).sum().item()
            total += len(label)
    print(f"top-1 {100 * right / total:.1f}%, largest logit {logits.abs().max().item():.2f}")


main()
