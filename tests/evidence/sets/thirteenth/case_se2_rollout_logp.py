"""
title: the trainer computes log-probabilities from bfloat16 logits and its ratios differ from one before any update
expect: silent:precision-loss|downcast
thread: https://github.com/OpenRLHF/OpenRLHF/pull/634
measured: before the first update: sequence KL 0.0247, clipped 26.6%
widened: before the first update: sequence KL 0.0000, clipped 0.0%

Expectation, written first: logits near minus nine have steps of a sixteenth, the errors of a few hundred tokens add up
in the sequence's ratio, and a fifth of the sequences is clipped at unchanged weights. The innocent suspect is the
advantage tensor in bfloat16: it changes no ratio.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Policy(nn.Module):
    def __init__(self, vocab=600, width=40):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.cell = nn.GRU(width, width, batch_first=True)
        self.lm_head = nn.Linear(width, vocab)

    def forward(self, ids):
        hidden, _ = self.cell(self.embed(ids))
        return 2.5 * self.lm_head(hidden)


def gather(logps, actions):
    return logps.gather(-1, actions[..., None])[..., 0]


class Rollout:
    def __init__(self, policy):
        self.policy = policy

    @torch.no_grad()
    def sample(self, batch, length, gen):
        ids = torch.randint(0, 600, (batch, length + 1), generator=gen)
        return ids, gather(F.log_softmax(self.policy(ids[:, :-1]).float(), -1), ids[:, 1:])


class Actor:
    """the trainer's copy of the policy"""

    def __init__(self, policy, bf16=True):
        self.policy = policy
        self.dtype = torch.bfloat16 if bf16 else torch.float32  # BORN

    def output(self, ids):
        return {"logits": self.policy(ids[:, :-1]).to(self.dtype)}  # BORN

    def log_probs(self, ids):
        return gather(F.log_softmax(self.output(ids)["logits"], dim=-1), ids[:, 1:]).float()


def advantages(rewards):
    centred = rewards - rewards.mean()
    return (centred / rewards.std()).to(torch.bfloat16)


def sequence_policy_loss(new, old, advantage, clip):
    log_ratio = (new - old).sum(-1)
    ratio = log_ratio.exp()
    gain = torch.minimum(ratio * advantage.float(), ratio.clamp(1 - clip, 1 + clip) * advantage.float())
    return -gain.mean(), (ratio - 1 - log_ratio).mean().item(), ((ratio - 1).abs() > clip).double().mean().item()


def main():
    torch.manual_seed(7)
    gen = torch.Generator().manual_seed(8)
    policy = Policy()
    ids, old = Rollout(policy).sample(64, 300, gen)
    rewards = torch.rand(64, generator=gen)
    with torch.no_grad():
        new = Actor(policy).log_probs(ids)
        loss, kl, clipped = sequence_policy_loss(new, old, advantages(rewards), clip=0.2)
    print(f"before the first update: sequence KL {kl:.4f}, clipped {100 * clipped:.1f}%")


main()
