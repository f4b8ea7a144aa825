"""
title: the exploration covariance of a continuous policy comes from numpy, the first actions drawn with it are refused
expect: collision
fix_at: 46

After https://github.com/pytorch/pytorch/issues/5954 (a covariance that was made by numpy for MultivariateNormal).
Right: the covariance is float32 as the means are.
"""
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.distributions import MultivariateNormal

torch.manual_seed(603)


@dataclass
class Exploration:
    """Steps of neighbouring joints are alike; the spread shrinks as training goes on."""
    joints: int = 4
    start: float = 0.6
    likeness: float = 0.4

    def factor(self, progress):
        near = np.abs(np.subtract.outer(np.arange(self.joints), np.arange(self.joints)))
        spread = self.start * (1 - 0.5 * progress)
        covariance = spread ** 2 * self.likeness ** near
        return torch.from_numpy(np.linalg.cholesky(covariance))  # BORN


class Arm(nn.Module):
    def __init__(self, exploration, states=8):
        super().__init__()
        self.exploration = exploration
        self.mean = nn.Sequential(nn.Linear(states, 32), nn.Tanh(), nn.Linear(32, exploration.joints), nn.Tanh())
        self.value = nn.Linear(states, 1)

    def act(self, states, progress, warm_up=0.3):
        if progress < warm_up:
            return 2 * torch.rand(len(states), self.exploration.joints) - 1
        return self.distribution(states, progress).sample()  # COLLIDES

    def distribution(self, states, progress):
        return MultivariateNormal(self.mean(states), scale_tril=self.exploration.factor(progress))


def update(arm, optimizer, batch, progress):
    states, actions, rewards = batch
    logp = arm.distribution(states, progress).log_prob(actions)
    value = arm.value(states)[:, 0]
    loss = -(logp * (rewards - value.detach())).mean() + (value - rewards).square().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(arm.parameters(), 1.0)
    optimizer.step()
    return loss.item()


arm = Arm(Exploration())
optimizer = torch.optim.Adam(arm.parameters(), lr=3e-3)
goal = torch.tensor([0.5, -0.3, 0.2, 0.1])
for episode in range(6):
    states = torch.randn(64, 8)
    with torch.no_grad():
        actions = arm.act(states, episode / 6)
    rewards = -(actions - goal).square().sum(-1)
    loss = update(arm, optimizer, (states, actions, rewards), episode / 6)
print("loss", round(loss, 3), "reward", round(rewards.mean().item(), 3))
