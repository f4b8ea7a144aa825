"""
title: a recurrent policy is enjoyed with the hidden states of a rollout buffer that numpy made
expect: collision
thread: https://github.com/MarcoMeter/recurrent-ppo-truncated-bptt/issues/9
fix_at: 39, 43, 58, 61, 75

Expectation, written first: the observations are cast to float32 on their way, the recurrent cell lies in a numpy
buffer of the default float64; the GRU multiplies it by float32 weights and refuses.
"""
import numpy as np
import torch
from torch import nn


class CartPole:
    """masked: the velocities are hidden from the agent"""

    def __init__(self, rng):
        self.rng, self.state = rng, None

    def reset(self):
        self.state = self.rng.uniform(-0.05, 0.05, 4)
        return self.observe()

    def observe(self):
        return self.state[[0, 2]].astype(np.float32)

    def step(self, action):
        x, v, angle, spin = self.state
        force = 10.0 if action else -10.0
        temp = (force + 0.05 * spin**2 * np.sin(angle)) / 1.1
        acc = (9.8 * np.sin(angle) - np.cos(angle) * temp) / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
        self.state = np.array([x + 0.02 * v, v + 0.02 * (temp - 0.05 * acc), angle + 0.02 * spin, spin + 0.02 * acc])
        return self.observe(), 1.0, bool(abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21)


class RecurrentBuffer:
    def __init__(self, steps, hidden):
        self.hxs = np.zeros((steps + 1, hidden))  # BORN
        self.rewards = np.zeros(steps, dtype=np.float32)

    def cell(self, t):
        return torch.from_numpy(self.hxs[t])[None, None]  # BORN

    def keep(self, t, hxs, reward):
        self.hxs[t + 1] = hxs[0, 0].numpy()
        self.rewards[t] = reward


class ActorCritic(nn.Module):
    def __init__(self, n_obs, n_actions, hidden):
        super().__init__()
        self.embed = nn.Linear(n_obs, hidden)
        self.recurrent = nn.GRU(hidden, hidden, batch_first=True)
        self.policy, self.value = nn.Linear(hidden, n_actions), nn.Linear(hidden, 1)

    def remember(self, h, cell):
        return self.recurrent(h.unsqueeze(1), cell)  # COLLIDES

    def forward(self, obs, cell):
        h, cell = self.remember(torch.relu(self.embed(obs)), cell)
        h = h.squeeze(1)
        return torch.distributions.Categorical(logits=self.policy(h)), self.value(h).squeeze(-1), cell


class Enjoy:
    def __init__(self, model, env, steps, hidden):
        self.model, self.env, self.steps = model, env, steps
        self.buffer = RecurrentBuffer(steps, hidden)

    @torch.no_grad()
    def episode(self):
        obs = self.env.reset()
        for t in range(self.steps):
            policy, value, cell = self.model(torch.tensor(obs)[None], self.buffer.cell(t))
            obs, reward, done = self.env.step(policy.sample().item())
            self.buffer.keep(t, cell, reward)
            if done:
                break
        return t + 1, float(self.buffer.rewards.sum())


if __name__ == "__main__":
    torch.manual_seed(12)
    length, reward = Enjoy(ActorCritic(2, 2, 16), CartPole(np.random.default_rng(1)), 60, 16).episode()
    print(f"episode length {length}, reward {reward}")
