"""
title: soft dice over half probabilities with half pixel sums
expect: silent:overflow
thread: https://github.com/qubvel-org/segmentation_models.pytorch/issues/463
measured: dice loss: [nan, nan, nan, nan]
widened: dice loss: [0.46, 0.422, 0.38, 0.327]

Expectation, written first: a 512x512 mask has up to 262144 foreground pixels, more than
half can count; the sums are inf and dice is NaN. The probabilities are half too, with
three good digits; only the sums matter.
"""
import torch
from torch import nn


class SegNet(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.a = nn.Conv2d(1, width, 3, padding=1)
        self.b = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class SoftDice(nn.Module):
    def __init__(self, prob_dtype, sum_dtype, smooth=1.0):
        super().__init__()
        self.prob_dtype, self.sum_dtype, self.smooth = prob_dtype, sum_dtype, smooth

    def forward(self, logits, target):
        probs = torch.sigmoid(logits.to(self.prob_dtype))
        inter = (probs * target.to(probs.dtype)).sum(dtype=self.sum_dtype)
        size = probs.sum(dtype=self.sum_dtype) + target.sum(dtype=self.sum_dtype)
        return 1 - (2 * inter + self.smooth) / (size + self.smooth)


def scan(size, seed):
    gen = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
    mask = ((yy ** 2 + xx ** 2) < 0.8).float()[None, None]
    return mask * 2 - 1 + 0.5 * torch.randn(1, 1, size, size, generator=gen), mask


def build_criterion():
    return SoftDice(
        prob_dtype=torch.float16,
        sum_dtype=torch.float16,  # BORN
    )


def main():
    torch.manual_seed(0)
    net, criterion = SegNet(), build_criterion()
    opt = torch.optim.SGD(net.parameters(), lr=0.5)
    history = []
    for step in range(4):
        image, mask = scan(384, step)
        loss = criterion(net(image), mask).float()
        opt.zero_grad()
        loss.backward()
        opt.step()
        history.append(round(loss.item(), 3))
    print("dice loss:", history)


main()
