"""
title: the KL penalty between actor and reference is a multiple of what it should be: log-probs in bfloat16
expect: silent:precision-loss|cancellation
thread: https://github.com/OpenRLHF/OpenRLHF/pull/634
measured: kl 1.04e-04, reward after the penalty +0.0096
widened: kl 1.91e-05, reward after the penalty +0.0181
innocent: kl 1.04e-04, reward after the penalty +0.0096
suspect: line 71 harmless (ones and zeros, and a count of 31)

Expectation, written first: the logits come in the model's bfloat16 and log-softmax is taken in it, so a log-probability
near -5 is a multiple of 1/32. The difference of actor and reference, of order 0.01, is drowned in that grid and the KL
estimate is far too large. The bfloat16 mask holds ones and zeros and counts to 31.
"""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


def log_probs_from_logits(logits, labels):
    log_probs = F.log_softmax(logits, dim=-1)  # BORN
    return log_probs.gather(dim=-1, index=labels.unsqueeze(-1)).squeeze(-1)


def masked_mean(tensor, mask):
    return (tensor * mask).sum() / mask.sum()


def compute_approx_kl(log_probs, log_probs_base, action_mask):
    log_ratio = log_probs - log_probs_base
    k3 = torch.exp(-log_ratio.float()) - 1 + log_ratio.float()
    return masked_mean(k3, action_mask)


class Actor(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, sequences):
        logits = self.model(input_ids=sequences)
        return log_probs_from_logits(logits[:, :-1], sequences[:, 1:])  # BORN


class TinyCausalLM(nn.Module):
    def __init__(self, vocab=128, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mlp = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 64), nn.SiLU(), nn.Linear(64, dim))
        self.norm = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, input_ids):
        h = self.embed(input_ids)
        h = h + self.mlp(h).cumsum(dim=1) / 8
        return self.lm_head(self.norm(h))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    reference = Actor(TinyCausalLM().to(torch.bfloat16)).eval()
    actor = Actor(copy.deepcopy(reference.model)).eval()
    with torch.no_grad():
        head = actor.model.lm_head.weight
        head.add_(torch.randn_like(head) * 0.001)
        sequences = torch.randint(0, 128, (8, 32))
        action_mask = torch.ones(8, 31)
        action_mask[:, :8] = 0
        action_mask = action_mask.to(torch.bfloat16)
        kl = compute_approx_kl(actor(sequences), reference(sequences), action_mask).item()
    penalty = 100.0 * kl
    print(f"kl {kl:.2e}, reward after the penalty {0.02 - penalty:+.4f}")


main()
