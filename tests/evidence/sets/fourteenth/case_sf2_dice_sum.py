"""
title: soft dice over all pixels of a batch of half precision probabilities
expect: silent:overflow
thread: https://github.com/qubvel-org/segmentation_models.pytorch/issues/463
measured: dice nan, loss nan
widened: dice 0.98, loss 0.02

Expectation, written first: the intersection and the cardinality are sums over a quarter of a million pixels; above
65504 the half precision sum is infinite and the score inf / inf. The head in bfloat16 gives rounded logits, but no
large numbers.
"""
import torch
from torch import nn


def soft_dice_score(output, target, smooth=1.0, eps=1e-7):
    dims = (0, 2, 3)
    intersection = torch.sum(output * target, dims)
    cardinality = torch.sum(output + target, dims)
    return (2 * intersection + smooth) / (cardinality + smooth).clamp_min(eps)


class DiceLoss(nn.Module):
    def forward(self, logits, target):
        probability = logits.sigmoid()  # BORN
        scores = soft_dice_score(probability, target.to(probability.dtype))
        return (1 - scores.float()).mean(), scores


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Conv2d(1, 1, 3, padding=1, dtype=torch.bfloat16)
        with torch.no_grad():
            self.head.weight.fill_(1.0)
            self.head.bias.fill_(-4.5)

    def forward(self, image):
        features = image.to(self.head.weight.dtype)
        return self.head(features).half()  # BORN


def scans(n, size, gen):
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
    for _ in range(n):
        cx, cy = (torch.rand(2, generator=gen) - 0.5).mul(0.1).tolist()
        mask = ((xx - cx) ** 2 + (yy - cy) ** 2 < 0.6).float()
        noise = 0.05 * torch.randn(4, 1, size, size, generator=gen)
        yield mask.expand(4, 1, size, size) + noise, mask.expand(4, 1, size, size)


def main():
    gen = torch.Generator().manual_seed(4)
    model, criterion = Segmenter().eval(), DiceLoss()
    losses, dice = [], []
    with torch.no_grad():
        for image, mask in scans(3, 256, gen):
            loss, score = criterion(model(image), mask)
            losses.append(loss.item())
            dice.append(score.float().mean().item())
    print(f"dice {sum(dice) / len(dice):.2f}, loss {sum(losses) / len(losses):.2f}")


main()
