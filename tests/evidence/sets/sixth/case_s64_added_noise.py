"""
title: noise is added by a table of alphas kept in bfloat16; the whole-numbered time steps may be half
expect: silent:precision-loss|downcast|round-trip
"""
import torch

torch.manual_seed(907)


class Noiser:
    def __init__(self, steps=1000):
        betas = torch.linspace(0.00085 ** 0.5, 0.012 ** 0.5, steps, dtype=torch.float64) ** 2
        self.kept = (1 - betas).cumprod(0)

    def levels(self, t):
        t = t.half().long()
        kept = self.kept.bfloat16().double()[t]  # BORN
        return kept.sqrt(), (1 - kept).sqrt()

    def add(self, x, eps, t):
        signal, noise = self.levels(t)
        return signal[:, None] * x + noise[:, None] * eps


def recovered(noiser, x, eps, t, noisy):
    """The noise in a sample by the exact schedule."""
    kept = noiser.kept[t][:, None]
    return (noisy - kept.sqrt() * x) / (1 - kept).sqrt()


noiser = Noiser()
x, eps = torch.randn(400, 16, dtype=torch.float64), torch.randn(400, 16, dtype=torch.float64)
t = torch.randint(0, 30, (400,))
guess = recovered(noiser, x, eps, t, noiser.add(x, eps, t))
print("error of the noise", round((guess - eps).square().mean().sqrt().item(), 3))
