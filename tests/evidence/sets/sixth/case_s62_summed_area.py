"""
title: a summed-area table keeps the image's float16, small boxes far from its corner are differences of large rounded numbers
expect: silent:precision-loss|downcast|cancellation

After https://github.com/scikit-image/scikit-image/pull/5392, https://github.com/scikit-image/scikit-image/pull/5372 and
https://github.com/opencv/opencv/pull/7127.
Right: the table is summed and kept in float32.
"""
import torch
import torch.nn.functional as F

torch.manual_seed(709)


class SummedArea:
    def __init__(self, image):
        table = image.cumsum(0).cumsum(1)  # BORN
        self.table = F.pad(table, (1, 0, 1, 0))

    def mean(self, size):
        """Means of all boxes of a size."""
        t = self.table
        total = t[size:, size:] - t[:-size, size:] - t[size:, :-size] + t[:-size, :-size]
        return total.float() / size ** 2


class Page:
    """Text on paper whose brightness falls off."""

    def __init__(self, side=128, dtype=torch.float16):
        x = torch.linspace(0.9, 0.5, side)
        self.ink = torch.zeros(side, side, dtype=torch.bool)
        for row in range(8, side - 8, 12):
            self.ink[row:row + 4] = torch.rand(side) < 0.5
        self.image = (x[:, None] * x[None] / 0.9 - 0.08 * self.ink + 0.01 * torch.randn(side, side)).to(dtype)


def threshold(page, size=9, share=0.96):
    """A pixel is ink where it is darker than its surroundings."""
    mean = SummedArea(page.image).mean(size)
    edge = size // 2
    middle = page.image[edge:-edge, edge:-edge].float()
    return middle < share * mean, page.ink[edge:-edge, edge:-edge], mean


page = Page()
found, ink, mean = threshold(page)
exact = F.avg_pool2d(page.image.double()[None], 9, stride=1)[0]
overlap = (found & ink).sum() / (found | ink).sum()
print("error of the means", round((mean - exact).abs().mean().item(), 4), "overlap with the ink", round(overlap.item(), 3))
