"""
title: probability ratio of generation and training log-probs is not one before any update
expect: silent:precision-loss|downcast
thread: https://github.com/huggingface/transformers/issues/31267
measured: max |ratio-1| 0.206 clip fraction 0.328 pg loss 0.0027
widened: max |ratio-1| 0.000 clip fraction 0.000 pg loss -0.0000; innocent: max |ratio-1| 0.206 clip fraction 0.328 pg loss 0.0027
suspect: 56 exact (scores are zero or one)

Expectation, written first: generation keeps log_softmax in float32, the training forward takes it of the bfloat16
logits. Log-probs near -6 to -9 are then multiples of 1/32 or 1/16; summed over a response the ratio leaves one and
part of the samples is clipped although the policy did not change. Remedy: upcast the logits. Scores in bfloat16 are
exact.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Policy(nn.Module):
    def __init__(self, vocab=1024, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        return self.lm_head(self.rnn(self.embed(ids))[0]).to(torch.bfloat16)


def generation_logprob(policy, query_response):
    logits = policy(query_response[:, :-1]).float()
    all_logprob = F.log_softmax(logits, dim=-1)
    return all_logprob.gather(-1, query_response[:, 1:, None]).squeeze(-1)


def forward_logprob(policy, query_response):
    logits = policy(query_response[:, :-1])
    all_logprob = F.log_softmax(logits, dim=-1)  # BORN
    return all_logprob.gather(-1, query_response[:, 1:, None]).squeeze(-1)


def ppo_stats(new_logprobs, logprobs, advantages, cliprange=0.1):
    logdiff = (new_logprobs - logprobs).sum(dim=1)
    ratio = logdiff.exp()
    clipped = torch.clamp(ratio, 1 - cliprange, 1 + cliprange)
    clipfrac = (ratio != clipped).float().mean().item()
    pg = -torch.minimum(advantages * ratio, advantages * clipped).mean().item()
    return (ratio - 1).abs().max().item(), clipfrac, pg


@torch.no_grad()
def main():
    torch.manual_seed(1)
    policy = Policy()
    query_response = torch.randint(0, 1024, (64, 65))
    scores = (torch.rand(64) < 0.5).to(torch.bfloat16)
    advantages = scores.float() - scores.float().mean()
    old = generation_logprob(policy, query_response)
    new = forward_logprob(policy, query_response)  # BORN
    gap, clipfrac, pg = ppo_stats(new.float(), old, advantages)
    print(f"max |ratio-1| {gap:.3f} clip fraction {clipfrac:.3f} pg loss {pg:.4f}")


main()
