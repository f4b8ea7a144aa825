"""
title: the atoms of a distributional critic are a float64 linspace, the projected masses are added to a float32 tensor
expect: collision
fix_at: 38, 53

After https://github.com/thu-ml/tianshou/pull/266 and https://github.com/mindspore-lab/mindrl/pull/159.
Right: the support is float32 like the network.
"""
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(109)


@dataclass(frozen=True)
class Atoms:
    low: float = -5.0
    high: float = 5.0
    count: int = 21

    @property
    def gap(self):
        return (self.high - self.low) / (self.count - 1)

    def support(self):
        return torch.from_numpy(np.linspace(self.low, self.high, self.count))  # BORN


class Critic(nn.Module):
    def __init__(self, atoms, obs=6, actions=3):
        super().__init__()
        self.atoms, self.actions = atoms, actions
        self.body = nn.Sequential(nn.Linear(obs, 32), nn.ReLU(), nn.Linear(32, actions * atoms.count))
        self.register_buffer("support", atoms.support())

    def forward(self, obs):
        return self.body(obs).view(-1, self.actions, self.atoms.count).log_softmax(-1)

    def values(self, obs):
        return (self(obs).exp() * self.support).sum(-1)


@torch.no_grad()
def project(target, obs, reward, done, gamma=0.97):
    """The next state's distribution, moved by the reward, on the fixed atoms."""
    atoms = target.atoms
    best = target.values(obs).argmax(-1)
    probs = target(obs).exp()[torch.arange(len(obs)), best]
    moved = (reward[:, None] + gamma * (1 - done[:, None]) * target.support).clamp(atoms.low, atoms.high)
    position = (moved - atoms.low) / atoms.gap
    lower = position.floor().long().clamp(0, atoms.count - 2)
    share = position - lower
    offset = torch.arange(len(obs))[:, None] * atoms.count
    mass = torch.zeros(probs.numel())
    mass.index_add_(0, (lower + offset).flatten(), (probs * (1 - share)).flatten())  # COLLIDES
    mass.index_add_(0, (lower + 1 + offset).flatten(), (probs * share).flatten())
    return mass.view_as(probs)


def train(steps=3):
    atoms = Atoms()
    online, target = Critic(atoms), Critic(atoms)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    for step in range(steps):
        obs, following = torch.randn(16, 6), torch.randn(16, 6)
        action, reward, done = torch.randint(0, 3, (16,)), torch.randn(16), (torch.rand(16) < 0.1).float()
        mass = project(target, following, reward, done)
        loss = -(mass * online(obs)[torch.arange(16), action]).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, round(loss.item(), 4))


train()
