"""
title: one of the two log probabilities of PPO is taken of the logits as autocast left them
expect: silent:precision-loss|downcast
thread: https://github.com/jingyaogong/minimind/pull/813
measured: replies outside the clip range 19%, mean ratio 0.982, loss 0.022
widened: replies outside the clip range 0%, mean ratio 1.000, loss -0.000

Expectation, written first: before the first update old and new policy are the same, yet the learner's log softmax
works in bfloat16 with steps of 1/32 at -7; summed over a reply the ratio leaves the clip range. The bfloat16
forward pass itself is the same on both sides and does no harm; rewards of 0 and 1 are exact.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Policy(nn.Module):
    def __init__(self, vocab=1500, dim=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mix = nn.Linear(dim, dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        h = self.embed(ids).cumsum(1) / torch.arange(1, ids.shape[1] + 1)[:, None].sqrt()
        return self.head(torch.tanh(self.mix(h)))


class Engine:
    def __init__(self, policy):
        self.policy = policy
        self.autocast = torch.autocast("cpu", dtype=torch.bfloat16)

    @torch.no_grad()
    def rollout(self, ids):
        with self.autocast:
            logits = self.policy(ids[:, :-1])
            logp = F.log_softmax(logits.float(), -1)
        return logp.gather(-1, ids[:, 1:, None])[..., 0]

    def learn(self, ids):
        with self.autocast:
            logits = self.policy(ids[:, :-1])  # BORN
        logp = F.log_softmax(logits, -1)  # BORN
        return logp.gather(-1, ids[:, 1:, None])[..., 0]


def reply_loss(new, old, advantage, clip=0.2):
    ratio = (new.float() - old.float()).sum(-1).exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
    return loss, ((ratio < 1 - clip) | (ratio > 1 + clip)).float().mean(), ratio


def main():
    torch.manual_seed(3)
    engine = Engine(Policy())
    ids = torch.randint(0, 1500, (64, 129))
    old = engine.rollout(ids)
    rewards = (torch.arange(64) % 2).to(torch.bfloat16)
    advantage = rewards.float() * 2 - 1
    loss, cut, ratio = reply_loss(engine.learn(ids), old, advantage)
    print(f"replies outside the clip range {100 * cut:.0f}%, mean ratio {ratio.mean():.3f}, loss {loss:.3f}")


main()
