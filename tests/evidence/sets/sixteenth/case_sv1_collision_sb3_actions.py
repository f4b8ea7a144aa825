"""
title: the replay buffer takes the dtype of the action space, which a simulator declares in float64
expect: collision
thread: https://github.com/DLR-RM/stable-baselines3/issues/1145
fix_at: 28, 45, 54, 58, 67, 83

Expectation, written first: acting works (the actor makes float32), it is learning that fails: the sampled actions are
float64, cat with the float32 observations promotes, and the first layer of the critic refuses. Cause: the buffer that
is allocated in the dtype of the space, or the space declared in float64 (numpy's own), or the conversion on sampling.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Box:
    def __init__(self, low, high, shape, dtype=np.float32):
        self.low, self.high, self.shape, self.dtype = low, high, shape, dtype

    def sample(self, rng):
        return rng.uniform(self.low, self.high, self.shape).astype(self.dtype)


class Cart:
    def __init__(self):
        self.observation_space = Box(-5, 5, (3,))
        self.action_space = Box(-1, 1, (1,), dtype=np.float64)  # BORN
        self.rng = np.random.default_rng(0)

    def reset(self):
        self.state = self.rng.uniform(-1, 1, 3).astype(np.float32)
        return self.state

    def step(self, action):
        push = np.float32(action[0])
        self.state = (0.9 * self.state + 0.1 * push * np.array([1, -1, 0.5], dtype=np.float32)).astype(np.float32)
        return self.state, -float(np.abs(self.state).sum())


class ReplayBuffer:
    def __init__(self, size, env):
        obs, act = env.observation_space, env.action_space
        self.obs = np.zeros((size, *obs.shape), dtype=obs.dtype)
        self.actions = np.zeros((size, *act.shape), dtype=act.dtype)  # BORN
        self.rewards = np.zeros((size, 1), dtype=np.float32)
        self.pos = 0

    def add(self, obs, action, reward):
        self.obs[self.pos], self.actions[self.pos], self.rewards[self.pos] = obs, action, reward
        self.pos += 1

    def to_torch(self, array):
        return torch.tensor(array)  # BORN

    def sample(self, n, rng):
        rows = rng.integers(0, self.pos, n)
        return self.to_torch(self.obs[rows]), self.to_torch(self.actions[rows]), self.to_torch(self.rewards[rows])


class Critic(nn.Module):
    def __init__(self, obs, act):
        super().__init__()
        self.q_net = nn.Sequential(nn.Linear(obs + act, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, obs, actions):
        return self.q_net(torch.cat([obs, actions], dim=1))  # COLLIDES


def main():
    torch.manual_seed(0)
    env, rng = Cart(), np.random.default_rng(1)
    buffer, critic = ReplayBuffer(400, env), Critic(3, 1)
    optimizer = torch.optim.Adam(critic.parameters(), lr=3e-3)
    obs = env.reset()
    for _ in range(300):
        action = env.action_space.sample(rng)
        after, reward = env.step(action)
        buffer.add(obs, action, reward)
        obs = after
    for step in range(100):
        o, a, r = buffer.sample(64, rng)
        loss = F.mse_loss(critic(o, a), r)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"critic loss {loss.item():.2f}")


main()
