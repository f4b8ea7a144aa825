"""
title: TD3 with a MuJoCo-like environment stops at the first update: the sampled observations are float64
expect: collision
thread: https://github.com/vwxyzjn/cleanrl/pull/113
fix_at: 40

Expectation, written first: the environment's observation space is float64, the replay buffer takes over that dtype for its storage and hands
the samples out as they are. The first Linear of the target actor is float32 and refuses the product. The space's dtype (as the pull request
sets it), the storage or the conversion at sampling can be changed.
"""
from collections import namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

Batch = namedtuple("Batch", "observations actions next_observations dones rewards")
Box = namedtuple("Box", "shape dtype")


class HopperLike:
    observation_space = Box((11,), np.dtype("float64"))  # BORN
    action_space = Box((3,), np.dtype("float32"))

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.state = self.rng.normal(size=11) * 0.1
        return self.state.astype(self.observation_space.dtype)

    def step(self, action):
        self.state = 0.95 * self.state + 0.05 * np.tanh(np.resize(action, 11)) + self.rng.normal(size=11) * 0.01
        return self.state.astype(self.observation_space.dtype), float(1.0 - np.abs(self.state).mean()), bool(self.rng.random() < 0.02)


class ReplayBuffer:
    def __init__(self, size, obs_space, act_space):
        self.observations = np.zeros((size, *obs_space.shape), dtype=obs_space.dtype)
        self.next_observations = np.zeros((size, *obs_space.shape), dtype=obs_space.dtype)  # BORN
        self.actions = np.zeros((size, *act_space.shape), dtype=act_space.dtype)
        self.rewards = np.zeros((size, 1), dtype=np.float32)
        self.dones = np.zeros((size, 1), dtype=np.float32)
        self.pos = 0

    def add(self, obs, next_obs, action, reward, done):
        self.observations[self.pos], self.next_observations[self.pos] = obs, next_obs
        self.actions[self.pos], self.rewards[self.pos], self.dones[self.pos] = action, reward, done
        self.pos += 1

    def sample(self, n, rng):
        idx = rng.integers(0, self.pos, size=n)
        arrays = (self.observations, self.actions, self.next_observations, self.dones, self.rewards)
        return Batch(*(torch.as_tensor(a[idx]) for a in arrays))  # BORN


class MLP(nn.Module):
    def __init__(self, n_in, n_out, squash=False):
        super().__init__()
        self.fc1, self.fc2, self.squash = nn.Linear(n_in, 32), nn.Linear(32, n_out), squash

    def forward(self, x):
        x = F.relu(self.fc1(x))  # COLLIDES
        x = self.fc2(x)
        return torch.tanh(x) if self.squash else x


if __name__ == "__main__":
    torch.manual_seed(1)
    env, rng = HopperLike(1), np.random.default_rng(1)
    actor, target_actor, qf1, qf1_target = MLP(11, 3, True), MLP(11, 3, True), MLP(14, 1), MLP(14, 1)
    rb = ReplayBuffer(200, env.observation_space, env.action_space)
    q_optimizer = torch.optim.Adam(qf1.parameters(), lr=3e-4)
    obs = env.reset()
    for global_step in range(200):
        action = rng.uniform(-1, 1, size=3).astype(np.float32)
        next_obs, reward, done = env.step(action)
        rb.add(obs, next_obs, action, reward, done)
        obs = env.reset() if done else next_obs
        if global_step >= 100 and global_step % 10 == 0:
            data = rb.sample(32, rng)
            with torch.no_grad():
                next_actions = target_actor(data.next_observations).clamp(-1, 1)
                target = data.rewards + 0.99 * (1 - data.dones) * qf1_target(torch.cat([data.next_observations, next_actions], 1))
            qf1_loss = F.mse_loss(qf1(torch.cat([data.observations, data.actions], 1)), target)
            q_optimizer.zero_grad()
            qf1_loss.backward()
            q_optimizer.step()
    print("td_loss", round(qf1_loss.item(), 4))
