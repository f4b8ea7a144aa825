"""
title: local variances of SSIM are differences of bfloat16 means of squares
expect: silent:precision-loss|downcast|cancellation
thread: https://github.com/Lightning-AI/pytorch-lightning/issues/6383
measured: SSIM of a close copy 0.883, of a mirrored one 0.480
widened: SSIM of a close copy 0.989, of a mirrored one 0.018

Expectation, written first: both E[x^2] and E[x]^2 are near 0.7 and rounded to three digits,
the variance between them is 0.0004; similarities are wrong in sign and size.
"""
import torch
import torch.nn.functional as F


def gaussian(size=11, sigma=1.5):
    x = torch.arange(size) - size // 2
    g = torch.exp(-x.float() ** 2 / (2 * sigma ** 2))
    g = g / g.sum()
    return (g[:, None] * g[None]).view(1, 1, size, size)


def ssim(a, b, c1=0.01 ** 2, c2=0.0005 ** 2):
    kernel = gaussian().to(a.dtype)
    mean = lambda t: F.conv2d(t, kernel)
    mu_a, mu_b = mean(a), mean(b)
    var_a = mean(a * a) - mu_a * mu_a
    var_b = mean(b * b) - mu_b * mu_b
    cov = mean(a * b) - mu_a * mu_b
    luma = (2 * mu_a * mu_b + c1) / (mu_a ** 2 + mu_b ** 2 + c1)
    return (luma * (2 * cov + c2) / (var_a + var_b + c2)).float().clamp(-1, 1).mean()


class Validation:
    def __init__(self, dtype):
        self.dtype, self.values = dtype, []

    def step(self, pred, target):
        self.values.append(ssim(pred.to(self.dtype), target.to(self.dtype)))  # BORN

    def epoch_end(self):
        return torch.stack(self.values).mean().item()


def main():
    gen = torch.Generator().manual_seed(0)
    good, poor = Validation(torch.bfloat16), Validation(torch.bfloat16)  # BORN
    for _ in range(4):
        texture = F.avg_pool2d(torch.randn(1, 1, 68, 68, generator=gen), 5, 1)
        target = 0.8 + 0.02 * texture / texture.std()
        good.step(target + 0.002 * torch.randn(target.shape, generator=gen), target)
        poor.step(target.flip(-1), target)
    print(f"SSIM of a close copy {good.epoch_end():.3f}, of a mirrored one {poor.epoch_end():.3f}")


main()
