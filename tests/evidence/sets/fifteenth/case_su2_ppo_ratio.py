"""
title: the policy loss takes log-probabilities from bfloat16 logits, the rollout took them in single precision
expect: silent:precision-loss|downcast
thread: https://github.com/jingyaogong/minimind/pull/814
measured: before any update: sequences outside the clip 49.0%, spread of the ratio 0.198
widened: before any update: sequences outside the clip 0.0%, spread of the ratio 0.000

Expectation, written first: the rollout raises the logits to float32 for log_softmax, the loss does not, and its
log-probabilities are rounded to bfloat16; the sequence ratio leaves the clip range although no weight has moved. The
bfloat16 rewards of zero and one, and the advantages made of them, are exact.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Policy(nn.Module):
    def __init__(self, vocab=512, width=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.body = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        return self.head(self.body(self.embed(ids)))


def autocast():
    return torch.autocast("cpu", dtype=torch.bfloat16)


def pick(logp, ids):
    return logp[:, :-1].gather(-1, ids[:, 1:, None]).squeeze(-1)


class Rollout:
    def __init__(self, policy, gen):
        self.policy, self.gen = policy, gen

    @torch.no_grad()
    def collect(self, n, length):
        ids = torch.randint(0, 512, (n, length), generator=self.gen)
        with autocast():
            old = pick(F.log_softmax(self.policy(ids).float(), dim=-1), ids)
        rewards = torch.randint(0, 2, (n,), generator=self.gen).to(torch.bfloat16)
        return ids, old, rewards.float() - rewards.float().mean()


class Trainer:
    def __init__(self, policy, clip=0.2):
        self.policy, self.clip = policy, clip
        self.optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)

    def loss(self, ids, old, advantage):
        with autocast():
            logits = self.policy(ids)  # BORN
        new = pick(F.log_softmax(logits, dim=-1), ids)  # BORN
        ratio = (new.float() - old.float()).sum(-1).exp()
        clipped = ratio.clamp(1 - self.clip, 1 + self.clip)
        gain = torch.minimum(ratio * advantage, clipped * advantage)
        self.stats = ((ratio - 1).abs() > self.clip).double().mean().item(), ratio.std().item()
        return -gain.mean()

    def update(self, *batch):
        self.optimizer.zero_grad()
        self.loss(*batch).backward()
        self.optimizer.step()
        return self.stats


def main():
    torch.manual_seed(3)
    policy = Policy()
    rollout = Rollout(policy, torch.Generator().manual_seed(8))
    clipped, spread = Trainer(policy).update(*rollout.collect(96, 300))
    print(f"before any update: sequences outside the clip {100 * clipped:.1f}%, spread of the ratio {spread:.3f}")


main()
