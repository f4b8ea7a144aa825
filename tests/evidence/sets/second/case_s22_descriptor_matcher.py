"""
title: a mutual-nearest-neighbour matcher takes |a|^2 + |b|^2 - 2ab in float16
expect: silent:precision-loss|downcast
modes: diagnose

After NVIDIA/cuvs#991 and spotify/annoy#314, pytorch/pytorch#136748. The squares are near 600, where float16 moves in steps of 0.5; the distances that
decide lie between 0.1 and 4. Of 64 true pairs 20 are found (repaired: all 64), 7 distances are negative. Right: float32 for the distances.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(25)


class Describe(nn.Module):
    """Descriptors of an untrained net: all of them lie near one another, away from zero."""

    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, width), nn.Tanh())
        self.offset = nn.Parameter(torch.full((width,), 3.0))

    def forward(self, patches):
        return self.offset + 0.25 * self.net(patches)


def squared_distances(a, b):
    aa = a.square().sum(-1)[:, None]
    bb = b.square().sum(-1)[None, :]
    return aa + bb - 2 * a @ b.t()


class Matcher:
    def __init__(self, ratio=0.95):
        self.ratio = ratio

    def __call__(self, a, b):
        a, b = a.half(), b.half()  # BORN
        distance = squared_distances(a, b)
        best, forward = distance.min(dim=1)
        backward = distance.argmin(dim=0)
        mutual = backward[forward] == torch.arange(len(a))
        second = distance.scatter(1, forward[:, None], torch.finfo(distance.dtype).max).min(dim=1).values
        return forward, mutual & (best < self.ratio * second), distance


def two_views(points=64):
    patches = torch.randn(points, 16)
    order = torch.randperm(points)
    moved = patches[order] + 0.15 * torch.randn(points, 16)
    return patches, moved, order.argsort()


@torch.no_grad()
def main():
    describe = Describe()
    first, second, truth = two_views()
    index, kept, distance = Matcher()(describe(first), describe(second))
    right = (index == truth) & kept
    print("kept", int(kept.sum()), "right", int(right.sum()), "of", len(truth))
    print("negative distances", int((distance < 0).sum()))


main()
