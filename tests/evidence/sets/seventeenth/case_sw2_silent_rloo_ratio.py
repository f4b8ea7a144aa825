"""
title: sequence-level ratio of RLOO is clipped on a policy that has hardly moved: token log-probabilities are rounded to BF16
expect: silent:downcast|precision-loss
thread: https://github.com/huggingface/blog/pull/2110
measured: ratio mean 0.9999 min 0.8035 max 1.2445, sequences nulled by the clip 6.2%, loss 0.0077
widened: ratio mean 1.0032 min 0.9560 max 1.0628, sequences nulled by the clip 0.0%, loss 0.0026
innocent: ratio mean 0.9999 min 0.8035 max 1.2445, sequences nulled by the clip 6.2%, loss 0.0077
suspect: 38 bf16 rewards: small (a few tenths of a percent on the advantage, none on the ratio)

Expectation, written first: The per-token log-probabilities are cast to BF16, where numbers around -6 have steps of 0.03; over 300 tokens
    the rounding adds up in the sequence log ratio and its exponential runs far from one. The BF16 rewards only scale the advantage by a
    few tenths of a percent.
"""
import torch
from torch import nn
import torch.nn.functional as F


class Policy(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocab, dim), nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.head(self.embed(ids))


class RLOOTrainer:
    def __init__(self, policy, cliprange=0.2, dtype=torch.bfloat16):  # BORN
        self.policy, self.cliprange, self.dtype = policy, cliprange, dtype

    def logprobs(self, ids):
        logits = self.policy(ids[:, :-1])
        all_logprob = F.log_softmax(logits, dim=-1).to(self.dtype)  # BORN
        return torch.gather(all_logprob, 2, ids[:, 1:, None]).squeeze(-1)

    def advantages(self, rewards):
        rewards = rewards.to(torch.bfloat16).float()
        baseline = (rewards.sum() - rewards) / (len(rewards) - 1)
        return rewards - baseline

    def loss(self, ids, old_logprob, rewards):
        new = self.logprobs(ids).float().sum(1)
        ratio = torch.exp(new - old_logprob.float().sum(1))
        adv = self.advantages(rewards)
        clipped = ratio.clamp(1 - self.cliprange, 1 + self.cliprange)
        nulled = ((ratio - 1).abs() > self.cliprange).float().mean()
        return -torch.min(ratio * adv, clipped * adv).mean(), ratio, nulled


torch.manual_seed(0)
policy = Policy(vocab=512, dim=32)
ids = torch.randint(0, 512, (48, 301))
rewards = torch.randn(48)
trainer = RLOOTrainer(policy)
with torch.no_grad():
    old_logprob = trainer.logprobs(ids)
    for p in policy.parameters():
        p.add_(2e-4 * torch.randn_like(p))
    loss, ratio, nulled = trainer.loss(ids, old_logprob, rewards)
print(f"ratio mean {ratio.mean():.4f} min {ratio.min():.4f} max {ratio.max():.4f}, sequences nulled by the clip {100 * nulled:.1f}%, loss {loss:.4f}")
