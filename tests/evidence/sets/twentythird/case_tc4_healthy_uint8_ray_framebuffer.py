"""
title: frames are kept as bytes in the replay buffer and divided by 255 when sampled
expect: clean
thread: https://github.com/ray-project/ray/issues/9624
measured: largest storage error 0.0 | value loss 0.0093, variance of the returns 0.0461
suspect: line 42, the frames are 8-bit integers to begin with

Expectation, written first: the environment delivers 8-bit grey frames, the buffer stores them as uint8 and the sampler turns them into
float32 before the division. Nothing is rounded that was not an integer, the value net fits the returns. The byte storage is exact.
"""
import torch
from torch import nn
import torch.nn.functional as F


class GrayScaleEnv:
    """a dot falls through the picture, the return is its discounted time to the ground"""

    def __init__(self, size, g):
        self.size, self.g = size, g

    def rollout(self):
        col = int(torch.randint(1, self.size - 1, (1,), generator=self.g))
        shade = int(torch.randint(120, 256, (1,), generator=self.g))
        frames, returns = [], []
        for row in range(self.size):
            frame = torch.full((self.size, self.size), 12.0)
            frame[row, col - 1:col + 2] = shade
            frames.append(frame)
            returns.append(0.9 ** (self.size - 1 - row))
        return torch.stack(frames), torch.tensor(returns)


class ReplayBuffer:
    def __init__(self, capacity, shape):
        self.obs = torch.zeros(capacity, *shape, dtype=torch.uint8)
        self.ret = torch.zeros(capacity)
        self.capacity, self.pos, self.full = capacity, 0, False

    def add_batch(self, obs, ret):
        for o, r in zip(obs, ret):
            self.obs[self.pos] = o.to(torch.uint8)
            self.ret[self.pos] = r
            self.pos = (self.pos + 1) % self.capacity
            self.full = self.full or self.pos == 0

    def sample(self, n, g):
        high = self.capacity if self.full else self.pos
        idx = torch.randint(0, high, (n,), generator=g)
        return self.obs[idx].float() / 255.0, self.ret[idx]


class VisionNetwork(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, padding=1)
        self.fc = nn.Linear(6 * size * size, 32)
        self.value = nn.Linear(32, 1)

    def forward(self, obs):
        h = F.relu(self.conv(obs.unsqueeze(1))).flatten(1)
        return self.value(F.relu(self.fc(h))).squeeze(-1)


torch.manual_seed(0)
g = torch.Generator().manual_seed(3)
env = GrayScaleEnv(12, g)
buffer = ReplayBuffer(600, (12, 12))
exact = []
for _ in range(60):
    obs, ret = env.rollout()
    buffer.add_batch(obs, ret)
    exact.append(obs)
net = VisionNetwork(12)
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for _ in range(60):
    obs, ret = buffer.sample(32, g)
    loss = F.mse_loss(net(obs), ret)
    opt.zero_grad()
    loss.backward()
    opt.step()
last = torch.cat(exact)[-600:]
stored = torch.cat([buffer.obs[buffer.pos:], buffer.obs[:buffer.pos]])
print("largest storage error", float((stored.float() - last).abs().max()))
print("value loss %.4f, variance of the returns %.4f" % (loss.item(), buffer.ret.var().item()))
