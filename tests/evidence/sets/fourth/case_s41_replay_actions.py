"""
title: the replay buffer keeps actions in the action space's float64, the critic is float32
expect: collision
fix_at: 33, 55, 61

After https://github.com/DLR-RM/stable-baselines3/pull/1572 (issue 1145) and https://github.com/DLR-RM/stable-baselines3/issues/675.
Right: store actions in float32.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(4)


class ReplayBuffer:
    def __init__(self, size, obs_dim, act_dim, action_dtype):
        self.size, self.next, self.full = size, 0, False
        self.obs = torch.zeros(size, obs_dim)
        self.next_obs = torch.zeros(size, obs_dim)
        self.actions = torch.zeros(size, act_dim, dtype=action_dtype)  # BORN
        self.rewards = torch.zeros(size, 1)
        self.dones = torch.zeros(size, 1)

    def add(self, obs, action, reward, next_obs, done):
        i = self.next
        self.obs[i], self.next_obs[i] = obs, next_obs
        self.actions[i], self.rewards[i], self.dones[i] = action, reward, float(done)
        self.next = (i + 1) % self.size

    def sample(self, batch):
        i = torch.randint(0, self.next, (batch,))
        return self.obs[i], self.actions[i], self.rewards[i], self.next_obs[i], self.dones[i]


class BoxSpace:
    def __init__(self, dim):
        self.dim, self.low, self.high = dim, -1.0, 1.0
        self.dtype = torch.float64  # BORN

    def sample(self):
        return torch.empty(self.dim, dtype=self.dtype).uniform_(self.low, self.high)


def mlp(inputs, outputs, hidden=32):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


class Critic(nn.Module):
    def __init__(self, obs_dim, act_dim):
        super().__init__()
        self.q1, self.q2 = mlp(obs_dim + act_dim, 1), mlp(obs_dim + act_dim, 1)

    def forward(self, obs, action):
        x = torch.cat([obs, action], dim=1)
        return self.q1(x), self.q2(x)  # COLLIDES


space = BoxSpace(2)
actor, critic = nn.Sequential(mlp(5, 2), nn.Tanh()), Critic(5, 2)
buffer = ReplayBuffer(64, 5, space.dim, space.dtype)
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
obs = torch.randn(5)
for t in range(40):
    action = space.sample()
    new = obs * 0.9 + 0.1 * torch.randn(5)
    buffer.add(obs, action, -new.square().sum(), new, t % 20 == 19)
    obs = new
for step in range(5):
    o, a, r, n, d = buffer.sample(16)
    with torch.no_grad():
        target = r + 0.99 * (1 - d) * torch.min(*critic(n, actor(n)))
    q1, q2 = critic(o, a)
    loss = F.mse_loss(q1, target) + F.mse_loss(q2, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 3))
