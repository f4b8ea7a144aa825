"""
title: SAC keeps a float64 action space in its replay buffer and the critic refuses the concatenated input
expect: collision
thread: https://github.com/DLR-RM/stable-baselines3/issues/1145
fix_at: 48, 49, 56

Expectation, written first: the environment declares its action Box in float64 and the replay buffer allocates the action storage in
that dtype. Sampling keeps it, so the critic's cat of float32 observations and float64 actions promotes to float64, and the first Linear
of the Q-network raises.
"""
from collections import namedtuple

import numpy as np
import torch as th
from torch import nn
from torch.nn import functional as F
class Box:
    def __init__(self, low, high, shape, dtype=np.float32):
        self.low, self.high, self.shape, self.dtype = low, high, shape, np.dtype(dtype)
class PointMassEnv:
    def __init__(self, seed=0):
        self.observation_space = Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = Box(-1.0, 1.0, (2,), np.float64)  # BORN
        self.rng = np.random.default_rng(seed)
    def reset(self):
        self.state = self.rng.normal(size=4)
        return self.state.astype(self.observation_space.dtype)
    def step(self, action):
        self.state[2:] += 0.1 * action
        self.state[:2] += 0.1 * self.state[2:]
        reward = -float(np.square(self.state[:2]).sum())
        return self.state.astype(self.observation_space.dtype), reward, False

ReplayBufferSamples = namedtuple("ReplayBufferSamples", "observations actions next_observations rewards")
class ReplayBuffer:
    def __init__(self, buffer_size, observation_space, action_space):
        self.observations = np.zeros((buffer_size, *observation_space.shape), dtype=observation_space.dtype)
        self.next_observations = np.zeros((buffer_size, *observation_space.shape), dtype=observation_space.dtype)
        self.actions = np.zeros((buffer_size, *action_space.shape), dtype=action_space.dtype)  # BORN
        self.rewards = np.zeros((buffer_size, 1), dtype=np.float32)
        self.pos = 0
    def add(self, obs, next_obs, action, reward):
        self.observations[self.pos], self.next_observations[self.pos] = obs, next_obs
        self.actions[self.pos], self.rewards[self.pos] = action, reward
        self.pos += 1
    def sample(self, batch_size, rng):
        inds = rng.integers(0, self.pos, size=batch_size)
        data = (self.observations[inds], self.actions[inds], self.next_observations[inds], self.rewards[inds])
        return ReplayBufferSamples(*(th.as_tensor(array) for array in data))
class ContinuousCritic(nn.Module):
    def __init__(self, obs_dim, action_dim, n_critics=2):
        super().__init__()
        self.q_networks = nn.ModuleList(
            nn.Sequential(nn.Linear(obs_dim + action_dim, 32), nn.ReLU(), nn.Linear(32, 1)) for _ in range(n_critics))
    def forward(self, obs, actions):
        qvalue_input = th.cat([obs, actions], dim=1)
        return tuple(q_net(qvalue_input) for q_net in self.q_networks)  # COLLIDES
class SAC:
    def __init__(self, env, buffer_size=256, gamma=0.99):
        self.env, self.gamma, self.rng = env, gamma, np.random.default_rng(1)
        self.replay_buffer = ReplayBuffer(buffer_size, env.observation_space, env.action_space)
        self.actor = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2), nn.Tanh())
        self.critic = ContinuousCritic(4, 2)
        self.optimizer = th.optim.Adam(self.critic.parameters(), lr=3e-3)
    def learn(self, total_timesteps):
        obs = self.env.reset()
        for _ in range(total_timesteps):
            action = self.rng.uniform(-1, 1, size=self.env.action_space.shape)
            next_obs, reward, _ = self.env.step(action)
            self.replay_buffer.add(obs, next_obs, action, reward)
            obs = next_obs
        return self.train(gradient_steps=10, batch_size=32)
    def train(self, gradient_steps, batch_size):
        for _ in range(gradient_steps):
            data = self.replay_buffer.sample(batch_size, self.rng)
            with th.no_grad():
                next_q = th.cat(self.critic(data.next_observations, self.actor(data.next_observations)), dim=1)
                target = data.rewards + self.gamma * next_q.min(dim=1, keepdim=True)[0]
            loss = 0.5 * sum(F.mse_loss(q, target) for q in self.critic(data.observations, data.actions))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()
if __name__ == "__main__":
    th.manual_seed(0)
    print(f"critic loss {SAC(PointMassEnv()).learn(200):.4f}")
