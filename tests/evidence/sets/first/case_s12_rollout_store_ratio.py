"""
title: old log-probabilities are kept in a bfloat16 rollout buffer; on-policy ratios are not 1 and most are clipped
expect: silent:downcast|precision-loss
modes: diagnose

THUDM/slime#892, PrimeIntellect-ai/prime-rl#568. log p of about -5 has a step of 1/32 in bfloat16: the ratio is off by percents, the clip
range is 0.003.
Measured: 83% of the tokens are clipped before any update; 0% with a float32 buffer.
BORN is the buffer's dtype. Change: float32.
"""
import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, vocab=200, width=24):
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(vocab, width), nn.GRU(width, width, batch_first=True), nn.Linear(width, vocab)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])


class Rollouts:
    def __init__(self, episodes, length):
        self.tokens = torch.zeros(episodes, length + 1, dtype=torch.long)
        self.logp = torch.zeros(episodes, length, dtype=torch.bfloat16)  # BORN
        self.advantage = torch.zeros(episodes, 1)

    def write(self, row, tokens, logp, advantage):
        self.tokens[row], self.advantage[row] = tokens, advantage
        self.logp[row] = logp


def logp_of(policy, tokens):
    return policy(tokens[:, :-1]).log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)


def surrogate(policy, rollouts, clip=0.003):
    ratio = (logp_of(policy, rollouts.tokens) - rollouts.logp).exp()
    wins = ratio * rollouts.advantage
    bound = ratio.clamp(1 - clip, 1 + clip) * rollouts.advantage
    clipped = ((ratio - 1).abs() > clip).float().mean()
    return -torch.min(wins, bound).mean(), float(clipped)


torch.manual_seed(0)
policy = Policy()
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
rollouts = Rollouts(16, 20)
for row in range(16):
    tokens = torch.randint(0, 200, (21,))
    with torch.no_grad():
        rollouts.write(row, tokens, logp_of(policy, tokens[None])[0], torch.randn(1))
loss, clipped = surrogate(policy, rollouts)
loss.backward()
optimizer.step()
print("clipped on-policy:", round(clipped, 3))
