"""
title: rewards from a replay buffer made float32 before they become a target
expect: clean

Prediction and target agree, in the forward and in the backward of the loss.
"""
import random
from collections import deque

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Replay:
    def __init__(self, size):
        self.memory = deque(maxlen=size)

    def push(self, *transition):
        self.memory.append(transition)

    def sample(self, count):
        states, actions, rewards, following, done = zip(*random.sample(self.memory, count))
        return (
            torch.stack(states),
            torch.tensor(actions),
            torch.as_tensor(np.array(rewards, dtype=np.float32)),
            torch.stack(following),
            torch.tensor(done, dtype=torch.float32),
        )


class Agent:
    def __init__(self, width, actions, gamma=0.99):
        self.critic = nn.Sequential(nn.Linear(width, 24), nn.Tanh(), nn.Linear(24, actions))
        self.target = nn.Sequential(nn.Linear(width, 24), nn.Tanh(), nn.Linear(24, actions))
        self.optimizer = torch.optim.Adam(self.critic.parameters(), lr=1e-3)
        self.gamma = gamma

    @torch.no_grad()
    def goal(self, reward, following, done):
        best = self.target(following).max(dim=1).values
        return reward + self.gamma * (1 - done) * best

    def learn(self, replay):
        state, action, reward, following, done = replay.sample(8)
        value = self.critic(state).gather(1, action[:, None]).squeeze(1)
        loss = F.huber_loss(value, self.goal(reward, following, done))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


random.seed(0)
torch.manual_seed(0)
replay, agent = Replay(100), Agent(4, 2)
for step in range(20):
    replay.push(torch.randn(4), step % 2, random.gauss(0, 1), torch.randn(4), step == 19)
print([round(agent.learn(replay), 3) for _ in range(3)])
