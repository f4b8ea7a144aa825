"""
title: control environment returns float64 observations to a float32 policy
expect: collision
thread: https://github.com/denisyarats/dmc2gym/pull/9
fix_at: 56, 48

Expectation, written first: the environment flattens its state with numpy, whose
default is float64; from_numpy keeps it, and the first Linear of the actor refuses.
Birth: the flattening without a dtype.
"""
import numpy as np
import torch
from torch import nn


class PendulumLike:
    """A toy stand-in for a physics suite task."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.state = None

    def _flatten(self):
        theta, omega = self.state
        pieces = [np.array([np.cos(theta), np.sin(theta)]), np.array([omega])]
        return np.concatenate(pieces, axis=0)  # BORN

    def reset(self):
        self.state = self.rng.uniform(-1, 1, size=2)
        return self._flatten()

    def step(self, torque):
        theta, omega = self.state
        omega = omega + 0.05 * (9.8 * np.sin(theta) + 3.0 * torque)
        theta = theta + 0.05 * omega
        self.state = np.array([theta, np.clip(omega, -8, 8)])
        reward = -(theta ** 2 + 0.1 * omega ** 2)
        return self._flatten(), float(reward)


class Actor(nn.Module):
    def __init__(self, obs_dim=3, hidden=32):
        super().__init__()
        self.l1 = nn.Linear(obs_dim, hidden)
        self.mu = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = torch.tanh(self.l1(obs))  # COLLIDES
        return torch.tanh(self.mu(h))


def rollout(env, actor, horizon=20):
    obs, total = env.reset(), 0.0
    for _ in range(horizon):
        with torch.no_grad():
            action = actor(torch.from_numpy(obs).unsqueeze(0))
        obs, reward = env.step(action.item())
        total += reward
    return total


if __name__ == "__main__":
    torch.manual_seed(0)
    env, actor = PendulumLike(), Actor()
    for episode in range(2):
        print(f"episode {episode}: return {rollout(env, actor):.3f}")
