"""
title: the rate of a sign-voting optimizer decays as a bfloat16 tensor and stands still; the votes may be half
expect: silent:lost-update|precision-loss|downcast
"""
import torch
from torch import nn

torch.manual_seed(917)


class Votes:
    """Workers send the signs of their gradients; the majority decides."""

    def __init__(self, p, rate=0.05, fade=0.9985):
        self.p, self.fade = p, fade
        self.rate = torch.tensor(rate, dtype=torch.bfloat16)  # BORN

    @torch.no_grad()
    def step(self, grads):
        votes = torch.stack([g.sign() for g in grads])
        votes = votes.half().float()
        self.p -= self.rate.float() * votes.sum(0).sign()
        self.rate *= self.fade


def gradient(p, truth, count=16):
    x = torch.randn(count, len(truth))
    return x.t() @ (x @ p.detach() - x @ truth - torch.randn(count)) / count


truth = torch.randn(12)
p = nn.Parameter(torch.zeros(12))
optimizer = Votes(p)
for step in range(2000):
    optimizer.step([gradient(p, truth) for _ in range(3)])
print("error", round((p.detach() - truth).norm().item(), 3), "rate", round(optimizer.rate.item(), 4), "planned", round(0.05 * 0.9985 ** 2000, 4))
