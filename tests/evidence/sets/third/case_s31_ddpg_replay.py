"""
title: DDPG whose replay buffer takes the observation space's float64
expect: collision
fix_at: 50, 56

After DLR-RM/stable-baselines3#675 and #1923: the first rollouts pass, the critic of the first update raises.
Right change: store observations in float32 (or convert when sampling).
"""
import numpy as np
import torch
import torch.nn as nn


class PointEnv:
    obs_dim, act_dim = 4, 2
    obs_dtype = np.float64

    def reset(self):
        self.s = np.random.uniform(-1, 1, self.obs_dim)
        return self.s

    def step(self, a):
        self.s = self.s + 0.1 * np.concatenate([a, a])
        return self.s, -float(np.square(self.s).sum())


class ReplayBuffer:
    def __init__(self, size, env):
        self.obs = np.zeros((size, env.obs_dim), dtype=env.obs_dtype)  # BORN
        self.nxt = np.zeros((size, env.obs_dim), dtype=np.float32)
        self.act = np.zeros((size, env.act_dim), dtype=np.float32)
        self.rew = np.zeros((size, 1), dtype=np.float32)
        self.n = 0

    def add(self, o, a, r, o2):
        self.obs[self.n], self.act[self.n], self.rew[self.n], self.nxt[self.n] = o, a, r, o2
        self.n += 1

    def sample(self, k):
        i = np.random.randint(0, self.n, k)
        return tuple(torch.as_tensor(b[i]) for b in (self.obs, self.act, self.rew, self.nxt))  # BORN


class Critic(nn.Module):
    def __init__(self, env):
        super().__init__()
        self.q = nn.Sequential(nn.Linear(env.obs_dim + env.act_dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, o, a):
        qin = torch.cat([o, a], dim=1)
        return self.q(qin)  # COLLIDES


np.random.seed(0)
torch.manual_seed(0)
env = PointEnv()
actor = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2), nn.Tanh())
critic = Critic(env)
opt = torch.optim.Adam(critic.parameters(), lr=1e-3)
buf = ReplayBuffer(200, env)
o = env.reset()
for t in range(60):
    with torch.no_grad():
        a = actor(torch.as_tensor(o, dtype=torch.float32)).numpy()
    o2, r = env.step(a)
    buf.add(o, a, r, o2)
    o = o2
for _ in range(3):
    o, a, r, o2 = buf.sample(16)
    with torch.no_grad():
        target = r + 0.99 * critic(o2, actor(o2))
    loss = nn.functional.mse_loss(critic(o, a), target)
    opt.zero_grad(); loss.backward(); opt.step()
print("q loss", loss.item())
