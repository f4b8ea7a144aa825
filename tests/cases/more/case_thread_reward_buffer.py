"""
title: a rollout buffer that was made in float32 gives observations to a half policy
expect: collision
fix_at: 14, 20, 37

The dtype comes from torch.zeros in the buffer; the environment's float32 numbers are written into it.
"""
import torch
from torch import nn


class Buffer:
    def __init__(self, size, width):
        self.obs = torch.zeros(size, width)  # BORN
        self.n = 0

    def add(self, row):
        self.obs[self.n] = row
        self.n += 1
        return self.obs[: self.n]


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.pi = nn.Linear(6, 8), nn.Linear(8, 3)

    def act(self, obs):
        return self.pi(torch.relu(self.body(obs)))  # COLLIDES


torch.manual_seed(0)
policy = Policy().half()
buffer = Buffer(16, 6)
for step in range(3):
    rows = buffer.add(torch.randn(6).half())
    action = policy.act(rows[-4:])
    print(action.shape)
