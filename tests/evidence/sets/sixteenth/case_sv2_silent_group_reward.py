"""
title: the advantages of a group of replies are taken from rewards in the dtype of the reward model
expect: silent:precision-loss|downcast
thread: https://github.com/OpenRLHF/OpenRLHF/pull/1334
measured: best reply preferred 33%
widened: best reply preferred 100%

Expectation, written first: rewards near 20 have steps of 1/8 in bfloat16, replies that differ by less get the same or
a swapped advantage. The lengths that give the penalty are int16 and short, the policy's own logits are not asked.
"""
import torch
from torch import nn


class RewardModel(nn.Module):
    """a frozen trunk and a head; prompts have very different base levels"""

    def __init__(self, dim):
        super().__init__()
        self.head = nn.Linear(dim, 1)
        nn.init.constant_(self.head.bias, 22.0)

    def forward(self, hidden, dtype=torch.bfloat16):  # BORN
        return self.head(hidden)[..., 0].to(dtype)  # BORN


class Experience:
    def __init__(self, rewards, lengths, limit=400, price=0.001):
        over = (lengths.to(torch.int32) - limit).clamp(min=0).float()
        self.rewards = rewards - (price * over).to(rewards.dtype)


def group_norm_advantages(rewards):
    centred = rewards - rewards.mean(-1, keepdim=True)
    return centred / (rewards.std(-1, keepdim=True) + 1e-6)


class Bandit:
    """a policy that picks one of eight replies for each prompt"""

    def __init__(self, prompts, replies):
        self.logits = torch.zeros(prompts, replies)

    def learn(self, advantages, lr=0.5, steps=30):
        for _ in range(steps):
            p = self.logits.softmax(-1)
            self.logits += lr * p * (advantages - (p * advantages).sum(-1, keepdim=True))


def main():
    torch.manual_seed(20)
    prompts, replies, dim = 500, 8, 24
    model = RewardModel(dim)
    hidden = 0.25 * torch.randn(prompts, 1, dim) + 0.06 * torch.randn(prompts, replies, dim)
    lengths = torch.randint(50, 380, (prompts, replies)).to(torch.int16)
    with torch.no_grad():
        rewards = Experience(model(hidden), lengths).rewards
        quality = model.head(hidden)[..., 0]
    policy = Bandit(prompts, replies)
    policy.learn(group_norm_advantages(rewards).float())
    best = (policy.logits.argmax(-1) == quality.argmax(-1)).float().mean()
    print(f"best reply preferred {100 * best:.0f}%")


main()
