"""
title: local normalised cross correlation of an image with itself is not one
expect: silent:cancellation|precision-loss|downcast
thread: https://github.com/Project-MONAI/MONAI/issues/1868
measured: ncc median 0.17 negative variances 0.40
widened: ncc median 0.53 negative variances 0.00; innocent: ncc median 0.17 negative variances 0.40
suspect: 23 exact (a kernel of ones)

Expectation, written first: the local variances are formed as sum(x^2) - sum(x)^2/n in float32; with intensities near
3000 and a contrast of 0.05 the terms are near 7e8 and the difference of 0.2 is lost, partly below zero. Remedy:
float64 (or centring) before the squares. The kernel of ones in half is exact.
"""
import torch
import torch.nn.functional as F
from torch import nn


class LocalNormalizedCrossCorrelationLoss(nn.Module):
    def __init__(self, kernel_size=9, smooth_dr=1e-5):
        super().__init__()
        self.kernel_size = kernel_size
        self.smooth_dr = smooth_dr
        kernel = torch.ones(1, 1, kernel_size, kernel_size, dtype=torch.float16)
        self.register_buffer("kernel", kernel)
        self.kernel_vol = kernel_size ** 2

    def _sum(self, x):
        return F.conv2d(x, self.kernel.to(x.dtype))

    def forward(self, pred, target):
        t2, p2, tp = target ** 2, pred ** 2, target * pred  # BORN
        t_sum, p_sum = self._sum(target), self._sum(pred)  # BORN
        t2_sum, p2_sum, tp_sum = self._sum(t2), self._sum(p2), self._sum(tp)  # BORN
        t_avg, p_avg = t_sum / self.kernel_vol, p_sum / self.kernel_vol
        cross = tp_sum - p_avg * t_sum  # BORN
        t_var = t2_sum - t_avg * t_sum  # BORN
        p_var = p2_sum - p_avg * p_sum  # BORN
        ncc = cross * cross / (t_var * p_var + self.smooth_dr)
        return ncc, t_var


def load_scan(generator, offset):
    anatomy = 0.05 * torch.randn(1, 1, 48, 48, generator=generator)
    return offset + anatomy


def main():
    generator = torch.Generator().manual_seed(1868)
    loss = LocalNormalizedCrossCorrelationLoss()
    fixed = load_scan(generator, 3000.0)
    noise = 0.05 * torch.randn(1, 1, 48, 48, generator=generator)
    moving = fixed + noise
    ncc, t_var = loss(moving.float(), fixed.float())  # BORN
    negative = (t_var < 0).float().mean().item()
    print(f"ncc median {ncc.median():.2f} negative variances {negative:.2f}")


main()
