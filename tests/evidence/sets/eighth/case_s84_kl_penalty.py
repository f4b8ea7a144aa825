"""
title: the KL penalty between a policy and its reference after the first update
expect: silent:precision-loss|downcast
thread: https://github.com/OpenRLHF/OpenRLHF/pull/634
measured: mean divergence per token 7.799e-07, mean reward 0.578
widened: mean divergence per token 3.939e-08, mean reward 0.578

Expectation, written first: the logits of both models are cast to bf16; the policies
differ by far less than one bf16 step, so the measured divergence is rounding noise, many times
the true one. BORN is that cast; float32 logits give the true value. The bf16 rewards are a
plain rounding of the reward.
"""
import copy

import torch
from torch import nn


class Actor(nn.Module):
    def __init__(self, vocab=64, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.body = nn.Linear(width, width)
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens):
        h = torch.tanh(self.body(self.embed(tokens)))
        logits = 4 * self.head(h)
        return logits.to(torch.bfloat16)  # BORN


def log_probs(logits, actions):
    return torch.log_softmax(logits.float(), -1).gather(-1, actions[..., None])[..., 0]


class Penalty:
    def __init__(self, coefficient):
        self.coefficient = coefficient

    def __call__(self, new, old, reward):
        ratio = old - new
        kl = torch.exp(ratio) - 1 - ratio
        return reward - self.coefficient * kl.sum(1), kl.mean().item()


def nudge(model, size, seed):
    gen = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(size * torch.randn(p.shape, generator=gen))


@torch.no_grad()
def main():
    torch.manual_seed(0)
    reference = Actor()
    actor = copy.deepcopy(reference)
    nudge(actor, 2e-5, seed=1)
    tokens = torch.randint(0, 64, (32, 40))
    actions = torch.distributions.Categorical(logits=reference(tokens).float()).sample()
    reward = torch.rand(32).to(torch.bfloat16)
    new, old = log_probs(actor(tokens), actions), log_probs(reference(tokens), actions)
    total, kl = Penalty(0.1)(new, old, reward.float())
    print("mean divergence per token %.3e, mean reward %.3f" % (kl, total.mean().item()))


if __name__ == "__main__":
    main()
