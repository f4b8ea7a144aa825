"""
title: a small GRPO loop under bfloat16 autocast, one context per forward; log-probabilities and ratio in float32
expect: clean

Looks like rollout_store_ratio and one_autocast_for_all_steps; the buffer is float32, the reference has its own context, logits are widened.
"""
import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, vocab=60, width=24):
        super().__init__()
        self.embed, self.inner, self.head = nn.Embedding(vocab, width), nn.Linear(width, width), nn.Linear(width, vocab)

    def forward(self, tokens):
        return self.head(torch.tanh(self.inner(self.embed(tokens))))


def logp_of(policy, tokens):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = policy(tokens[:, :-1])
    return logits.float().log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)


torch.manual_seed(0)
policy, reference = Policy(), Policy()
reference.load_state_dict(policy.state_dict())
optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-3)
tokens, advantage = torch.randint(0, 60, (16, 13)), torch.randn(16, 1)
old = torch.zeros(16, 12)
with torch.no_grad():
    old.copy_(logp_of(policy, tokens))
    anchor = logp_of(reference, tokens)
ratios = []
for _ in range(6):
    new = logp_of(policy, tokens)
    ratio = (new - old).exp()
    gap = anchor - new
    loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean() + 0.02 * (gap.exp() - gap - 1).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    ratios.append(round(float((ratio.detach() - 1).abs().max()), 4))
print(ratios)
