"""
title: DDPG replay batch: actions with NumPy noise become a double tensor
expect: collision
thread: https://github.com/seungeunrho/minimalRL/issues/34
fix_at: 57, 77

Expectation, written first: the Ornstein-Uhlenbeck noise is a NumPy double, so the stored action is np.float64 and
torch.tensor without a dtype makes the action batch float64, while states are built with torch.float. The action
layer of the critic then multiplies double with float weights. The action tensor needs the dtype its siblings have.
"""
import collections
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class ReplayBuffer:
    def __init__(self, limit=500):
        self.buffer = collections.deque(maxlen=limit)

    def put(self, transition):
        self.buffer.append(transition)

    def sample(self, n):
        s_lst, a_lst, r_lst, s_prime_lst, done_lst = [], [], [], [], []
        for s, a, r, s_prime, done in random.sample(self.buffer, n):
            s_lst.append(s)
            a_lst.append([a])
            r_lst.append([r])
            s_prime_lst.append(s_prime)
            done_lst.append([0.0 if done else 1.0])
        states = torch.tensor(np.array(s_lst), dtype=torch.float)
        actions = torch.tensor(a_lst)  # BORN
        rewards = torch.tensor(r_lst, dtype=torch.float)
        return states, actions, rewards, torch.tensor(np.array(s_prime_lst), dtype=torch.float), torch.tensor(done_lst)


class MuNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc_mu = nn.Linear(3, 32), nn.Linear(32, 1)

    def forward(self, x):
        return torch.tanh(self.fc_mu(F.relu(self.fc1(x)))) * 2


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc_s, self.fc_a, self.fc_q = nn.Linear(3, 16), nn.Linear(1, 16), nn.Linear(32, 1)

    def forward(self, x, a):
        h1 = F.relu(self.fc_s(x))
        h2 = F.relu(self.fc_a(a))  # COLLIDES
        return self.fc_q(torch.cat([h1, h2], dim=1))


class OrnsteinUhlenbeckNoise:
    def __init__(self, mu, theta=0.1, dt=0.01, sigma=0.1):
        self.mu, self.theta, self.dt, self.sigma = mu, theta, dt, sigma
        self.x_prev = np.zeros_like(mu)

    def __call__(self):
        self.x_prev = self.x_prev + self.theta * (self.mu - self.x_prev) * self.dt + self.sigma * np.sqrt(self.dt) * np.random.normal(size=self.mu.shape)
        return self.x_prev


def main():
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    memory, mu, q, noise = ReplayBuffer(), MuNet(), QNet(), OrnsteinUhlenbeckNoise(mu=np.zeros(1))
    optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
    s = np.random.randn(3)
    for _ in range(64):
        a = mu(torch.from_numpy(s).float()).item() + noise()[0]
        s_prime = 0.9 * s + 0.1 * a + 0.05 * np.random.randn(3)
        memory.put((s, a, -float((s**2).sum()) / 100.0, s_prime, False))
        s = s_prime
    for _ in range(5):
        s_b, a_b, r_b, s2_b, mask = memory.sample(16)
        target = r_b + 0.99 * q(s2_b, mu(s2_b)).detach() * mask
        q_loss = F.smooth_l1_loss(q(s_b, a_b), target)
        optimizer.zero_grad(), q_loss.backward(), optimizer.step()
    print("q_loss", f"{q_loss.item():.5f}")


if __name__ == "__main__":
    main()
