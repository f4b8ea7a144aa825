"""
title: Sequence-level importance ratio from log-probabilities stored in bfloat16
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/THUDM/slime/pull/892
measured: sequences outside the clip = 3% (true 41%), worst relative error of the ratio = 40.4370
widened: sequences outside the clip = 41% (true 41%), worst relative error of the ratio = 0.0001

Expectation, written first.  The rollout buffer stores per-token
log-probabilities in bfloat16.  The sequence ratio is exp(sum new - sum old):
the sums of 400 tokens are several hundred, where bfloat16 has a step of 2 to
4, so the difference is 0 or a multiple of it and the ratio is 1, 7, 55, where the
true ratios lie around one; the clip acts on the wrong
sequences.  BORN is the cast in the function that makes the log-probabilities;
float32 there mends it.
"""
import torch
from torch import nn

torch.manual_seed(0)
VOCAB, LENGTH = 64, 400


class Policy(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCAB, dim), nn.Linear(dim, VOCAB)
        nn.init.normal_(self.head.weight, std=0.5)

    def forward(self, ids):
        return self.head(self.embed(ids))


def token_logps(policy, ids):
    logps = policy(ids[:, :-1]).log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    return logps.to(torch.bfloat16)  # BORN


@torch.no_grad()
def rollout(policy, n):
    ids = torch.randint(0, VOCAB, (n, 1))
    for _ in range(LENGTH):
        ids = torch.cat([ids, torch.multinomial(policy(ids[:, -1]).softmax(-1), 1)], 1)
    return ids


def gspo_loss(new, old, advantages, low=0.8, high=1.2):
    log_ratio = new.sum(-1) - old.sum(-1)
    ratio = torch.exp(log_ratio.float())
    clipped = ratio.clamp(low, high)
    return -torch.min(ratio * advantages, clipped * advantages).mean(), ratio


def main(group=32):
    policy = Policy()
    ids = rollout(policy, group)
    with torch.no_grad():
        old = token_logps(policy, ids)
        exact_old = policy(ids[:, :-1]).double().log_softmax(-1).gather(-1, ids[:, 1:, None]).sum((1, 2))
        for p in policy.parameters():
            p.add_(3e-3 * torch.randn_like(p))
        exact_new = policy(ids[:, :-1]).double().log_softmax(-1).gather(-1, ids[:, 1:, None]).sum((1, 2))
    advantages = torch.randn(group)
    loss, ratio = gspo_loss(token_logps(policy, ids), old, advantages)
    exact = torch.exp(exact_new - exact_old)
    outside = ((ratio < 0.8) | (ratio > 1.2)).float().mean().item()
    worst = (ratio.double() / exact - 1).abs().max().item()
    print(f"surrogate loss = {loss.item():.4f}")
    truly = ((exact < 0.8) | (exact > 1.2)).float().mean().item()
    print(f"sequences outside the clip = {100 * outside:.0f}% (true {100 * truly:.0f}%), worst relative error of the ratio = {worst:.4f}")


if __name__ == "__main__":
    main()
