"""
title: observations of a simulator are kept compactly in a replay buffer, their statistics in double precision
expect: clean
thread: https://github.com/vwxyzjn/cleanrl/issues/438
measured: mean 0.014, std 0.268, td error 0.004 (float64 store and net: the same)

Expectation, written first: float64 observations become float32 and pictures uint8, both with all the digits the task
has; the running mean and variance are float64 and the targets float32. The learned values are those of a double run.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

STORE = np.float32


class Cart:
    """a cart on a rail: its state in float64 and a picture in uint8"""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.state = self.rng.uniform(-1, 1, 2)
        return self.observe()

    def observe(self):
        rail = np.arange(16) - 8 * (1 + self.state[0] / 3)
        picture = np.clip(255 * np.exp(-rail**2), 0, 255).astype(np.uint8)
        return self.state.copy(), picture

    def step(self, action):
        x, v = self.state
        v = 0.95 * v + 0.1 * (2 * action - 1)
        self.state = np.array([np.clip(x + 0.1 * v, -3, 3), v])
        return self.observe(), -float(self.state[0] ** 2)


class RunningMeanStd:
    def __init__(self, shape):
        self.mean, self.var, self.count = np.zeros(shape, np.float64), np.ones(shape, np.float64), 1e-4

    def update(self, x):
        self.count += 1
        delta = x - self.mean
        self.mean = self.mean + delta / self.count
        self.var = self.var + (delta * (x - self.mean) - self.var) / self.count


class ReplayBuffer:
    def __init__(self, size):
        self.obs, self.next_obs = (np.zeros((size, 2), STORE) for _ in range(2))
        self.pictures, self.next_pictures = (np.zeros((size, 16), np.uint8) for _ in range(2))
        self.rewards, self.pos = np.zeros(size, STORE), 0

    def add(self, obs, picture, next_obs, next_picture, reward):
        i = self.pos
        self.obs[i], self.next_obs[i], self.rewards[i] = obs, next_obs, reward
        self.pictures[i], self.next_pictures[i] = picture, next_picture
        self.pos += 1

    def sample(self, n, rng):
        at = rng.integers(self.pos, size=n)
        arrays = (self.obs, self.pictures, self.next_obs, self.next_pictures, self.rewards)
        return [torch.from_numpy(a[at]) for a in arrays]


class ValueNet(nn.Module):
    def __init__(self, stats, width=32):
        super().__init__()
        self.register_buffer("mean", torch.from_numpy(stats.mean).to(torch.get_default_dtype()))
        self.register_buffer("std", torch.from_numpy(np.sqrt(stats.var)).to(torch.get_default_dtype()))
        self.net = nn.Sequential(nn.Linear(18, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, obs, picture):
        x = (obs.to(self.mean.dtype) - self.mean) / (self.std + 1e-8)
        return self.net(torch.cat([x, picture.to(x.dtype) / 255.0], 1)).squeeze(-1)


def main():
    env, buffer, stats, rng = Cart(0), ReplayBuffer(2000), RunningMeanStd(2), np.random.default_rng(1)
    for episode in range(40):
        obs, picture = env.reset()
        for _ in range(50):
            (next_obs, next_picture), reward = env.step(int(obs[0] + obs[1] < 0))
            buffer.add(obs, picture, next_obs, next_picture, reward)
            stats.update(next_obs)
            obs, picture = next_obs, next_picture
    torch.manual_seed(0)
    net = ValueNet(stats)
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(300):
        o, p, no, np_, r = buffer.sample(128, rng)
        with torch.no_grad():
            target = r.to(net.mean.dtype) + 0.8 * net(no, np_)
        loss = F.mse_loss(net(o, p), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"mean {stats.mean[0]:.3f}, std {np.sqrt(stats.var[0]):.3f}, td error {loss.item():.3f}")


main()
