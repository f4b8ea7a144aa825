"""
title: soft Dice score over whole slides
expect: silent:overflow|downcast
thread: https://github.com/qubvel-org/segmentation_models.pytorch/issues/463
measured: dice per slide [0.874, nan, nan]
widened: dice per slide [0.873, 0.979, 0.99]

Expectation, written first: the sums of a 512 by 512 slide pass 65504 in float16 and
become inf; inf by inf is nan, so large tumours have no score.
BORN is the cast of the probabilities to half; float32 gives the score.
"""
import torch
from torch import nn


class Slides:
    def __init__(self, size):
        self.size = size

    def __iter__(self):
        yy, xx = torch.meshgrid(torch.arange(self.size), torch.arange(self.size), indexing="ij")
        centre = self.size / 2
        radius = ((yy - centre) ** 2 + (xx - centre) ** 2).sqrt()
        for share in (0.1, 0.3, 0.49):
            mask = (radius < share * self.size).float()
            image = mask + 0.2 * torch.sin(0.05 * xx)
            yield share, image[None, None], mask[None, None]


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.smooth = nn.AvgPool2d(9, stride=1, padding=4)

    def forward(self, x):
        logits = 12 * (self.smooth(x) - 0.5)
        return torch.sigmoid(logits).half()  # BORN


class SoftDice:
    def __init__(self, smooth=1e-3):
        self.smooth = smooth

    def __call__(self, prob, target):
        target = target.to(prob.dtype)
        inter = torch.sum(prob * target)
        total = torch.sum(prob) + torch.sum(target)
        return (2 * inter + self.smooth) / (total + self.smooth)


def main():
    model, score = Segmenter().eval(), SoftDice()
    values = []
    with torch.no_grad():
        for share, image, mask in Slides(512):
            values.append(score(model(image), mask).item())
    print("dice per slide", [round(v, 3) for v in values])


if __name__ == "__main__":
    main()
