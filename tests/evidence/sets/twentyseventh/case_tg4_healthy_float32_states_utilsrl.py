"""
title: observations and rewards of the environment are cut from float64 to float32 for the agent
expect: clean
thread: https://github.com/typoverflow/UtilsRL/issues/2
measured: mean return -0.945 value -0.948 bias 0.004 mse 0.0364
suspect: 23 negligible (states and rewards of order one keep seven digits)

Expectation, written first: gym-like environments return float64, the networks are float32, and the helper converts every
array on the way in. Positions of order one lose nothing that matters; the value estimates are those of a float64
agent to what is printed.
"""
import numpy as np
import torch
import torch.nn as nn


class UtilsRL:
    numpy_fp = np.float64
    torch_fp = torch.float32


def convert_to_tensor(obj, dtype=None):
    return torch.as_tensor(np.asarray(obj), dtype=dtype or UtilsRL.torch_fp)


class PointMass:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.state = self.rng.uniform(-1, 1, size=2)
        return self.state.copy()

    def step(self, action):
        x, v = self.state
        v = 0.9 * v + 0.1 * float(np.clip(action, -1, 1))
        x = x + 0.1 * v
        self.state = np.array([x, v], dtype=UtilsRL.numpy_fp)
        return self.state.copy(), -(x ** 2 + 0.1 * v ** 2)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(6))

    def forward(self, obs):
        x, v = obs.unbind(-1)
        return torch.stack([torch.ones_like(x), x, v, x * x, x * v, v * v], -1) @ self.weight


def rollout(env, horizon, gamma):
    obs, rewards = env.reset(), []
    states = [obs]
    for _ in range(horizon):
        action = -1.5 * obs[0] - 0.5 * obs[1]
        obs, reward = env.step(action)
        rewards.append(reward)
        states.append(obs)
    returns, g = [], 0.0
    for r in reversed(rewards):
        g = r + gamma * g
        returns.append(g)
    return states[:-1], returns[::-1]


def main():
    torch.manual_seed(2)
    gamma, horizon = 0.95, 120
    env, critic = PointMass(2), Critic()
    states, targets = [], []
    for _ in range(40):
        s, g = rollout(env, horizon, gamma)
        states += s[:20]
        targets += g[:20]
    obs, returns = convert_to_tensor(states), convert_to_tensor(targets)
    optimizer = torch.optim.Adam(critic.parameters(), lr=0.05)
    for _ in range(200):
        loss = (critic(obs) - returns).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    bias = (critic(obs) - returns).mean().item()
    print(f"mean return {returns.mean().item():.3f} value {critic(obs).mean().item():.3f} bias {abs(bias):.3f} mse {loss.item():.4f}")


main()
