"""
title: the floor of a Gaussian policy's spread is 1e-8 in half, the entropy bonus becomes infinite
expect: silent:underflow|overflow
thread: https://github.com/kscalelabs/minppo/pull/19
measured: updates skipped: 200 of 200
widened: updates skipped: 0 of 200

Expectation, written first: 1e-8 is zero in half and so is the square of a small spread; the
logarithm is minus infinity, the loss is infinite and every later update is skipped.
"""
import torch
from torch import nn


class GaussianPolicy(nn.Module):
    def __init__(self, obs=6, act=3):
        super().__init__()
        self.mean = nn.Linear(obs, act)
        self.raw_std = nn.Linear(obs, act)

    def forward(self, obs):
        return self.mean(obs), torch.relu(self.raw_std(obs))


def entropy(std, eps=1e-8):
    variance = (std + eps) ** 2
    return 0.5 * (torch.log(2 * torch.pi * variance) + 1)


class Learner:
    def __init__(self, compute_dtype):
        torch.manual_seed(0)
        self.policy = GaussianPolicy()
        self.opt = torch.optim.SGD(self.policy.parameters(), lr=1e-2)
        self.dtype = compute_dtype
        self.skipped = 0

    def update(self, obs, action, advantage):
        mean, std = self.policy(obs)
        std = std.to(self.dtype)  # BORN
        bonus = entropy(std).float().mean()
        loss = ((action - mean).pow(2).mean(-1) * advantage).mean() - 0.01 * bonus
        if not torch.isfinite(loss):
            self.skipped += 1
            return
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()


learner = Learner(torch.float16)  # BORN
gen = torch.Generator().manual_seed(1)
for _ in range(200):
    obs = torch.randn(64, 6, generator=gen)
    learner.update(obs, obs[:, :3].tanh(), torch.rand(64, generator=gen))
print(f"updates skipped: {learner.skipped} of 200")
