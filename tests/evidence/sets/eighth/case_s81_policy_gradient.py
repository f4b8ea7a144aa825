"""
title: a policy-gradient learner whose episode keeps rewards in a numpy array
expect: collision
thread: https://github.com/AI4Finance-Foundation/ElegantRL/issues/9
fix_at: 54

Expectation, written first: np.zeros without a dtype is float64; the discounted
returns stay float64 through torch.from_numpy, and the dot product with the float32 log
probabilities refuses (dot : expected both vectors to have same dtype).
BORN is the array of rewards; dtype=np.float32 there mends it. A cast where numpy is turned
to torch would do as well.
"""
import numpy as np
import torch
from torch import nn


class Corridor:
    """Walk to the right end of a corridor; every step costs a little."""

    def __init__(self, size=6):
        self.size = size

    def reset(self):
        self.pos = 0
        return self.observe()

    def observe(self):
        return torch.nn.functional.one_hot(torch.tensor(self.pos), self.size).float()

    def step(self, action):
        self.pos = max(0, self.pos + (1 if action == 1 else -1))
        done = self.pos == self.size - 1
        return self.observe(), (1.0 if done else -0.05), done


class Episode:
    def __init__(self, length):
        self.rewards = np.zeros(length)  # BORN
        self.log_probs = []
        self.steps = 0

    def add(self, log_prob, reward):
        self.rewards[self.steps] = reward
        self.log_probs.append(log_prob)
        self.steps += 1

    def returns(self, gamma):
        out = np.zeros_like(self.rewards[: self.steps])
        running = 0.0
        for i in range(self.steps - 1, -1, -1):
            running = self.rewards[i] + gamma * running
            out[i] = running
        return torch.from_numpy(out)


class Learner:
    def __init__(self, size, gamma=0.95):
        self.policy = nn.Sequential(nn.Linear(size, 16), nn.Tanh(), nn.Linear(16, 2))
        self.opt = torch.optim.Adam(self.policy.parameters(), 2e-2)
        self.gamma = gamma

    def play(self, env, limit=40):
        obs, episode = env.reset(), Episode(limit)
        for _ in range(limit):
            dist = torch.distributions.Categorical(logits=self.policy(obs))
            action = dist.sample()
            obs, reward, done = env.step(int(action))
            episode.add(dist.log_prob(action), reward)
            if done:
                break
        return episode

    def learn(self, episode):
        gains = episode.returns(self.gamma)
        loss = -torch.dot(gains, torch.stack(episode.log_probs)) / episode.steps  # COLLIDES
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()


def main():
    torch.manual_seed(0)
    env, learner = Corridor(), Learner(6)
    lengths = []
    for _ in range(60):
        episode = learner.play(env)
        learner.learn(episode)
        lengths.append(episode.steps)
    print("mean length of the last ten", sum(lengths[-10:]) / 10)


if __name__ == "__main__":
    main()
