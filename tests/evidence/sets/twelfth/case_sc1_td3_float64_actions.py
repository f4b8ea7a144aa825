"""
title: TD3 on an environment whose action space is float64
expect: collision
thread: https://github.com/DLR-RM/stable-baselines3/issues/1145
fix_at: 30, 47, 58, 62, 73, 74, 100

Expectation, written first: the replay buffer stores actions in the dtype of the action space; the critic joins them to
the float32 observations, the result is float64 and its first linear layer refuses.
"""
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn


@dataclass
class Box:
    low: float
    high: float
    shape: tuple
    dtype: type = np.float32

    def sample(self, rng):
        return rng.uniform(self.low, self.high, self.shape).astype(self.dtype)


class ReacherLike:
    observation_space = Box(-np.inf, np.inf, (4,), np.float32)
    action_space = Box(-1.0, 1.0, (2,), np.float64)  # BORN

    def reset(self, rng):
        self.state = rng.standard_normal(4)
        return self.state.astype(self.observation_space.dtype)

    def step(self, action):
        self.state[2:] = 0.9 * self.state[2:] + 0.1 * action
        self.state[:2] += 0.1 * self.state[2:]
        reward = -float(np.square(self.state[:2]).sum())
        return self.state.astype(self.observation_space.dtype), reward, abs(self.state[0]) > 4


class ReplayBuffer:
    def __init__(self, size, obs_space, act_space):
        self.obs = np.zeros((size, *obs_space.shape), dtype=obs_space.dtype)
        self.next_obs = np.zeros_like(self.obs)
        self.actions = np.zeros((size, *act_space.shape), dtype=act_space.dtype)
        self.rewards = np.zeros((size, 1), dtype=np.float32)
        self.dones = np.zeros((size, 1), dtype=np.float32)
        self.pos = 0

    def add(self, obs, next_obs, action, reward, done):
        i = self.pos
        self.obs[i], self.next_obs[i], self.actions[i], self.rewards[i], self.dones[i] = obs, next_obs, action, reward, done
        self.pos += 1

    def to_torch(self, array):
        return torch.as_tensor(array)

    def sample(self, n, rng):
        idx = rng.integers(0, self.pos, n)
        return [self.to_torch(a[idx]) for a in (self.obs, self.actions, self.next_obs, self.rewards, self.dones)]


class ContinuousCritic(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden=32):
        super().__init__()
        self.q_networks = nn.ModuleList(
            nn.Sequential(nn.Linear(obs_dim + act_dim, hidden), nn.ReLU(), nn.Linear(hidden, 1)) for _ in range(2)
        )

    def forward(self, obs, actions):
        qvalue_input = torch.cat([obs, actions], dim=1)
        return tuple(q(qvalue_input) for q in self.q_networks)  # COLLIDES


class TD3:
    def __init__(self, env, gamma=0.98, batch_size=16, lr=1e-3):
        self.env, self.gamma, self.batch_size, self.rng = env, gamma, batch_size, np.random.default_rng(0)
        self.buffer = ReplayBuffer(400, env.observation_space, env.action_space)
        self.actor = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2), nn.Tanh())
        self.critic, self.critic_target = ContinuousCritic(4, 2), ContinuousCritic(4, 2)
        self.critic_target.load_state_dict(self.critic.state_dict())
        self.optimizer = torch.optim.Adam(self.critic.parameters(), lr=lr)

    def collect(self, steps):
        obs = self.env.reset(self.rng)
        for _ in range(steps):
            action = self.env.action_space.sample(self.rng)
            next_obs, reward, done = self.env.step(action)
            self.buffer.add(obs, next_obs, action, reward, done)
            obs = self.env.reset(self.rng) if done else next_obs

    def train(self, steps):
        for _ in range(steps):
            obs, actions, next_obs, rewards, dones = self.buffer.sample(self.batch_size, self.rng)
            with torch.no_grad():
                q = torch.min(*self.critic_target(next_obs, self.actor(next_obs)))
                target = rewards + (1 - dones) * self.gamma * q
            loss = sum(nn.functional.mse_loss(c, target) for c in self.critic(obs, actions))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()


torch.manual_seed(0)
agent = TD3(ReacherLike())
agent.collect(200)
print(f"critic loss {agent.train(20):.3f}")
