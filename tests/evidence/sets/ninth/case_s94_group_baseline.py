"""
title: group baseline of close rewards in bf16, log-probabilities in bf16 too
expect: silent:precision-loss|downcast
thread: https://github.com/OpenRLHF/OpenRLHF/pull/1334
measured: probability of the three best answers after training: 0.25 (start 0.25)
widened: probability of the three best answers after training: 1.00 (start 0.25)
fix_at: 24

Expectation, written first: rewards around 8 differ by hundredths, less than a bf16 step
there, so the group advantages are zero or a coin toss and the policy does not learn
which answer is better. The log-probabilities are bf16 as well and do no harm; float32
for them alone leaves the advantages as they are.
"""
import torch
from torch import nn


class RewardModel:
    def __init__(self, arms=12, base=8.0, spread=0.02, seed=0):
        gen = torch.Generator().manual_seed(seed)
        self.quality = base + spread * torch.randperm(arms, generator=gen).float() / arms

    def score(self, actions, dtype):
        return self.quality[actions].to(dtype)


class Policy(nn.Module):
    def __init__(self, arms):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(arms))

    def sample(self, n, gen):
        return torch.multinomial(self.logits.detach().softmax(-1), n, replacement=True, generator=gen)

    def logp(self, actions, dtype):
        return self.logits.log_softmax(-1)[actions].to(dtype)


def group_advantages(rewards):
    centred = rewards - rewards.mean()
    return centred / (rewards.std() + 1e-6)


def train(steps=400, group=16):
    gen = torch.Generator().manual_seed(1)
    reward_model = RewardModel()
    policy = Policy(12)
    opt = torch.optim.SGD(policy.parameters(), lr=0.5)
    for _ in range(steps):
        actions = policy.sample(group, gen)
        rewards = reward_model.score(actions, dtype=torch.bfloat16)  # BORN
        adv = group_advantages(rewards).float()
        logp = policy.logp(actions, dtype=torch.bfloat16)
        loss = -(adv * logp.float()).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    probs = policy.logits.detach().softmax(-1)
    rank = reward_model.quality.argsort(descending=True)
    return probs[rank[:3]].sum().item()


print(f"probability of the three best answers after training: {train():.2f} (start 0.25)")
