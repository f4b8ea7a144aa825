"""
title: Q values from a uint8 replay buffer: frames are divided by 255 as floats, nothing wraps
expect: clean
thread: https://github.com/DLR-RM/stable-baselines3/issues/720
measured: mean distance to the goal 0.1037, mean Q -0.0478, actions [0, 96, 32, 0]  (with float64 in its place: mean distance to the goal
    0.1037, mean Q -0.0478, actions [0, 96, 32, 0])
suspect: 19 uint8 frames: exact (256 grey levels, cast to float before the difference)

Expectation, written first: Frames of the HER buffer are kept as uint8 and the goal is subtracted from them, which looks like a wrap. The
    sampler casts both to float32 before the difference and the observation keeps its 256 levels exactly, so the distances and Q values
    agree with float64.
"""
import torch
from torch import nn


class DictReplayBuffer:
    def __init__(self, size, shape):
        self.observation = torch.zeros(size, *shape, dtype=torch.uint8)
        self.desired_goal = torch.zeros(size, *shape, dtype=torch.uint8)
        self.pos = 0

    def add(self, obs, goal):
        self.observation[self.pos] = obs
        self.desired_goal[self.pos] = goal
        self.pos += 1

    def sample(self, idx):
        return preprocess_obs(self.observation[idx]), preprocess_obs(self.desired_goal[idx])


def preprocess_obs(obs):
    return obs.float() / 255.0


class GoalEnv:
    def __init__(self, size=12, seed=0):
        self.size, self.g = size, torch.Generator().manual_seed(seed)

    def render(self, where):
        frame = torch.randint(0, 40, (self.size, self.size), generator=self.g)
        frame[where, where] = 255
        return frame

    def rollout(self, n):
        for i in range(n):
            yield self.render(i % self.size), self.render((5 * i) % self.size)


class QNetwork(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(size * size, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, obs, goal):
        return self.net(goal - obs)


torch.manual_seed(0)
env, buffer, q_net = GoalEnv(), DictReplayBuffer(200, (12, 12)), QNetwork(12)
for obs, goal in env.rollout(200):
    buffer.add(obs, goal)
with torch.no_grad():
    obs, goal = buffer.sample(torch.randint(0, 200, (128,)))
    q = q_net(obs, goal)
distance = (goal - obs).pow(2).mean((1, 2)).sqrt()
print(f"mean distance to the goal {distance.mean():.4f}, mean Q {q.mean():.4f}, actions {torch.bincount(q.argmax(1), minlength=4).tolist()}")
