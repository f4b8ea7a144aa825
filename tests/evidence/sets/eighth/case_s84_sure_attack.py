"""
title: a gradient-sign attack on a very sure classifier
expect: silent:zero-gradient|underflow|downcast
thread: https://github.com/cleverhans-lab/cleverhans/issues/350
measured: pictures changed 2 of 200, accuracy under attack 0.990
widened: pictures changed 200 of 200, accuracy under attack 0.000
fix_at: 51

Expectation, written first: the logits are cast to half before the softmax; for sure
predictions the other probabilities are below 6e-8 and vanish, so the gradient is exactly zero
and the attack leaves nearly all pictures unchanged. BORN is the cast of the logits; float32 keeps a
tiny gradient whose sign is enough. Half pixels are exact here.
"""
import torch
from torch import nn


class SureNet(nn.Module):
    """A linear classifier with a large margin."""

    def __init__(self, size, classes, gain):
        super().__init__()
        torch.manual_seed(0)
        self.templates = nn.Parameter(torch.sign(torch.randn(classes, size)))
        self.gain = gain

    def forward(self, x):
        logits = self.gain * x @ self.templates.t() / x.shape[1]
        return logits.half()  # BORN


class Pictures:
    def __init__(self, net, noise, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.net, self.noise = net, noise

    def batch(self, n):
        y = torch.randint(0, len(self.net.templates), (n,), generator=self.gen)
        clean = self.net.templates.detach()[y]
        x = clean + self.noise * torch.randn(clean.shape, generator=self.gen)
        x = (x * 64).round() / 64
        return x.to(torch.float16), y


class SignAttack:
    def __init__(self, net, eps):
        self.net, self.eps = net, eps

    def __call__(self, x, y):
        x = x.float().requires_grad_(True)
        prob = torch.softmax(self.net(x), dim=1)
        loss = nn.functional.nll_loss(torch.log(prob.clamp(min=1e-4)), y)
        others = prob.sum(1) - prob.gather(1, y[:, None])[:, 0]
        grad = torch.autograd.grad(loss + others.sum(), x)[0]
        return (x + self.eps * grad.sign()).detach()


def main():
    net = SureNet(size=64, classes=5, gain=24.0)
    x, y = Pictures(net, noise=0.2, seed=1).batch(200)
    adv = SignAttack(net, eps=1.4)(x, y)
    changed = int((adv != x.float()).any(1).sum())
    right = (net(adv).argmax(1) == y).double().mean().item()
    print("pictures changed %d of 200, accuracy under attack %.3f" % (changed, right))


if __name__ == "__main__":
    main()
