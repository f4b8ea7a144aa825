"""
title: returns of long episodes accumulated in bf16 from bf16 rewards
expect: silent:lost-update
thread: https://github.com/huggingface/trl/pull/6635
measured: value of the first state 236.6, true return 768.5
widened: value of the first state 768.5, true return 768.5
fix_at: 35

Expectation, written first: the survival reward of 1 stops counting when the running
return reaches 256, so all early states of a 1000 step episode get the same target. The
rewards are stored in bf16, where 1 and 0 are exact; that storage changes nothing.
"""
import torch
from torch import nn


class Episodes:
    def __init__(self, count=24, horizon=1000, seed=0):
        gen = torch.Generator().manual_seed(seed)
        self.lengths = torch.randint(horizon // 2, horizon, (count,), generator=gen)
        self.horizon = horizon

    def rewards(self, dtype):
        t = torch.arange(self.horizon)
        return (t[None] < self.lengths[:, None]).to(dtype)

    def features(self):
        left = (self.lengths[:, None] - torch.arange(self.horizon)[None]).clamp(min=0)
        x = left.float() / self.horizon
        return torch.stack([x, x ** 2], -1), left.float()


def returns_to_go(rewards, gamma, dtype):
    out = torch.zeros(rewards.shape, dtype=torch.float32)
    running = torch.zeros(rewards.shape[0], dtype=dtype)
    for t in reversed(range(rewards.shape[1])):
        running = rewards[:, t].to(dtype) + gamma * running
        out[:, t] = running.float()
    return out


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(2, 1)

    def fit(self, x, y):
        a = torch.cat([x, torch.ones(*x.shape[:-1], 1)], -1).flatten(0, 1).double()
        sol = torch.linalg.lstsq(a, y.flatten()[:, None].double()).solution
        with torch.no_grad():
            self.w.weight.copy_(sol[:2].t())
            self.w.bias.copy_(sol[2])
        return self


def main():
    episodes = Episodes()
    rewards = episodes.rewards(torch.bfloat16)
    targets = returns_to_go(rewards, gamma=1.0, dtype=torch.bfloat16)  # BORN
    x, left = episodes.features()
    critic = Critic().fit(x, targets)
    early = critic.w(x[:, 0]).squeeze(-1).detach()
    print(f"value of the first state {early.mean().item():.1f}, true return {left[:, 0].mean().item():.1f}")


main()
