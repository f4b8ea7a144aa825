"""
title: occluded pixels weigh as much as visible ones in the photometric loss: ~ on a uint8 mask gives 255 and 254
expect: silent:overflow|wraparound|integer-overflow
thread: https://github.com/lvzhaoyang/DeeperInverseCompositionalAlgorithm/pull/5
measured: share of pixels used 99.9%, loss 0.00358, gain 0.9883
widened: share of pixels used 84.7%, loss 0.00022, gain 1.0003
innocent: share of pixels used 99.9%, loss 0.00358, gain 0.9883
suspect: 58 half depth: small (0.05% of a depth, far from the threshold)

Expectation, written first: The invalid mask is uint8 and is inverted with ~, which is a bitwise not: 0 becomes 255 and 1 becomes 254, so
    as a weight nothing is masked. The half precision depth looks guilty, but it rounds by 0.05%.
"""
import torch
from torch import nn
import torch.nn.functional as F


class RGBDPair:
    def __init__(self, seed, size=48):
        g = torch.Generator().manual_seed(seed)
        self.I0 = F.interpolate(torch.rand(1, 1, 12, 12, generator=g), size=(size, size), mode="bilinear")
        self.I1 = self.I0 + 0.02 * torch.randn(1, 1, size, size, generator=g)
        depth = 1.5 + 0.4 * torch.rand(1, 1, size, size, generator=g)
        depth[..., 10:26, 8:30] = 0.4
        self.I1[..., 10:26, 8:30] = 0.9 * torch.rand(1, 1, 16, 22, generator=g)
        self.depth = depth


def compute_invalid(depth, near=0.6):
    return (depth < near).to(torch.uint8)  # BORN


class TrustRegionLoss(nn.Module):
    def __init__(self, huber=0.1):
        super().__init__()
        self.huber = huber

    def forward(self, pred, target, invalid):
        weight = (~invalid).float()  # BORN
        weight = weight / weight.max().clamp(min=1)
        residual = F.huber_loss(pred, target, delta=self.huber, reduction="none")
        return (weight * residual).sum() / weight.sum(), weight


class GainModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor([0.5, 0.2]))

    def forward(self, image, depth):
        return self.gain[0] * image + self.gain[1] * (depth.reciprocal() - 0.6) * 0.1


def fit(pairs, steps=150):
    model, criterion, used, last = GainModel(), TrustRegionLoss(), 0.0, 0.0
    for step in range(steps):
        pair = pairs[step % len(pairs)]
        depth = pair.depth.to(torch.float16)
        loss, weight = criterion(model(pair.I0, depth.float()), pair.I1, compute_invalid(depth))
        (grad,) = torch.autograd.grad(loss, [model.gain])
        model.gain.data.sub_(4.0 * grad)
        used, last = weight.mean().item(), loss.item()
    return model.gain.detach(), used, last


torch.manual_seed(0)
gain, used, last = fit([RGBDPair(s) for s in range(4)])
print(f"share of pixels used {100 * used:.1f}%, loss {last:.5f}, gain {gain[0]:.4f}")
