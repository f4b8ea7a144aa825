"""
title: returns of an environment with whole-number rewards are all whole numbers: they inherit the dtype of the reward
expect: silent:downcast|precision-loss|round-trip
thread: https://github.com/facebookresearch/rlmeta/pull/103
measured: mean return 0.931, value of the start state -0.581
widened: mean return 5.056, value of the start state 5.439
innocent: mean return 0.931, value of the start state -0.581
suspect: 44 uint8 done: flag (1 - 0 and 1 - 1 cannot wrap)

Expectation, written first: The environment pays Python ints, so the reward tensor is int64 and the buffer of returns is empty_like of it.
    Every discounted return is cut to an integer on assignment and the discount eats the future. The uint8 done flag in 1 - done looks
    like a wrap, but it holds 0 or 1 only.
"""
import torch
from torch import nn


class CorridorEnv:
    def __init__(self, length=12):
        self.length = length

    def reset(self):
        self.pos = 0
        return torch.zeros(2)

    def step(self, action):
        self.pos += action
        done = self.pos >= self.length
        reward = 5 if done else (1 if self.pos % 3 == 0 and action else 0)
        return torch.tensor([self.pos / self.length, float(action)]), reward, done


class ReplayBuffer:
    def __init__(self):
        self.obs, self.rewards, self.dones = [], [], []

    def extend(self, obs, reward, done):
        self.obs.append(obs)
        self.rewards.append(reward)
        self.dones.append(done)

    def tensors(self):
        rewards = torch.tensor(self.rewards)  # BORN
        dones = torch.tensor(self.dones, dtype=torch.uint8)
        return torch.stack(self.obs), rewards, dones


def discounted_return(rewards, dones, gamma):
    returns = torch.empty_like(rewards)  # BORN
    running = torch.zeros(())
    for t in range(len(rewards) - 1, -1, -1):
        running = rewards[t] + gamma * (1 - dones[t]) * running
        returns[t] = running
        running = returns[t]
    return returns


torch.manual_seed(0)
env, buffer = CorridorEnv(), ReplayBuffer()
for _ in range(40):
    obs, done = env.reset(), False
    while not done:
        nxt, reward, done = env.step(int(torch.rand(()) < 0.6))
        buffer.extend(obs, reward, done)
        obs = nxt
obs, rewards, dones = buffer.tensors()
returns = discounted_return(rewards, dones, gamma=0.97)
critic = nn.Linear(2, 1)
for _ in range(800):
    loss = nn.functional.mse_loss(critic(obs).squeeze(-1), returns.float())
    for p, g in zip(critic.parameters(), torch.autograd.grad(loss, list(critic.parameters()))):
        p.data.sub_(g, alpha=0.2)
print(f"mean return {returns.float().mean():.3f}, value of the start state {critic(torch.zeros(1, 2)).item():.3f}")
