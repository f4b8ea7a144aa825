"""
title: a bandit updates the inverse of its design matrix in bfloat16, after some hundred rounds it no longer shrinks
expect: silent:lost-update|precision-loss|downcast
fix_at: 17

After https://github.com/neural-bandits/calvera/pull/121, https://github.com/gchq/coreax/issues/658 and https://github.com/facebookresearch/ReAgent/pull/706.
Right: the inverse is float32.
"""
import torch

torch.manual_seed(710)


class LinUcb:
    """One linear model for all arms; Sherman and Morrison's formula for the inverse."""

    def __init__(self, dim, alpha=0.6, ridge=1.0, dtype=torch.bfloat16):
        self.inverse = torch.eye(dim, dtype=dtype) / ridge  # BORN
        self.target = torch.zeros(dim)
        self.alpha = alpha
        self.exact = torch.eye(dim, dtype=torch.float64) * ridge

    def width(self, x):
        return ((x @ self.inverse.float()) * x).sum(-1).clamp(min=0).sqrt()

    def choose(self, x):
        theta = self.inverse.float() @ self.target
        return int((x @ theta + self.alpha * self.width(x)).argmax())

    def learn(self, x, reward):
        x = x.to(self.inverse.dtype)
        direction = self.inverse @ x
        self.inverse -= torch.outer(direction, direction) / (1 + x @ direction)
        self.target += reward * x.float()
        self.exact += torch.outer(x, x).double()


class Shop:
    def __init__(self, dim=8):
        self.theta = torch.randn(dim) / dim ** 0.5

    def offers(self, count=12):
        return torch.randn(count, len(self.theta)).bfloat16().float()

    def value(self, x):
        return x @ self.theta


shop, bandit = Shop(), LinUcb(8)
regret = 0.0
for round_ in range(1500):
    offers = shop.offers()
    pick = bandit.choose(offers)
    value = shop.value(offers)
    if round_ >= 500:
        regret += (value.max() - value[pick]).item()
    bandit.learn(offers[pick], (value[pick] + 0.3 * torch.randn(())).item())
test = shop.offers(200)
exact = ((test.double() @ bandit.exact.inverse()) * test).sum(-1).sqrt()
print("regret", round(regret, 2), "width against the exact one", round((bandit.width(test).mean() / exact.mean()).item(), 2))
