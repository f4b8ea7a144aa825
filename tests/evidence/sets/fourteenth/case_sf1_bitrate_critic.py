"""
title: discounted returns of a streaming agent are summed in a numpy buffer and become the critic's target
expect: collision
thread: https://github.com/pytorch/pytorch/issues/76646
fix_at: 48, 52, 56, 58

Expectation, written first: np.zeros is float64, so the returns are; the Huber loss of the critic promotes without
a word in the forward pass, and its gradient is refused in the backward pass.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Stream:
    """chunk downloads: the state is buffer, throughput and last quality"""

    def __init__(self, seed=5):
        self.rng = np.random.default_rng(seed)
        self.bitrates = [0.3, 0.75, 1.2, 1.85]

    def reset(self):
        self.buffer, self.last = 4.0, 0
        return self.state(1.0)

    def state(self, throughput):
        return [self.buffer / 10, throughput, self.bitrates[self.last]]

    def step(self, action):
        throughput = float(self.rng.uniform(0.4, 2.2))
        delay = 4 * self.bitrates[action] / throughput
        rebuffer = max(delay - self.buffer, 0.0)
        self.buffer = min(max(self.buffer - delay, 0.0) + 4.0, 30.0)
        reward = self.bitrates[action] - 4.3 * rebuffer - abs(self.bitrates[action] - self.bitrates[self.last])
        self.last = action
        return self.state(throughput), reward


class A3C:
    def __init__(self, gamma=0.99):
        self.gamma = gamma
        self.actor = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 4), nn.Softmax(-1))
        self.critic = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 1))
        self.opt = torch.optim.RMSprop([*self.actor.parameters(), *self.critic.parameters()], lr=1e-3)

    def returns(self, r_batch):
        out = np.zeros(len(r_batch))  # BORN
        out[-1] = r_batch[-1]
        for t in reversed(range(len(r_batch) - 1)):
            out[t] = r_batch[t] + self.gamma * out[t + 1]
        return torch.from_numpy(out)  # BORN

    def update(self, s_batch, a_batch, r_batch):
        s, a = torch.tensor(s_batch), torch.tensor(a_batch)
        target = self.returns(r_batch)
        value = self.critic(s).squeeze(-1)
        critic_loss = F.huber_loss(value, target)
        self.opt.zero_grad()
        critic_loss.backward()  # COLLIDES
        advantage = (target - value).detach()
        log_prob = self.actor(s).gather(1, a[:, None]).squeeze(1).log()
        (-(log_prob * advantage).mean()).backward()
        self.opt.step()
        return critic_loss.item()


def main():
    torch.manual_seed(5)
    net, env = A3C(), Stream()
    for episode in range(4):
        state, s, a, r = env.reset(), [], [], []
        for _ in range(24):
            action = int(torch.multinomial(net.actor(torch.tensor(state)), 1))
            s.append(state)
            a.append(action)
            state, reward = env.step(action)
            r.append(reward)
        loss = net.update(s, a, r)
    print(f"critic loss {loss:.3f}")


main()
