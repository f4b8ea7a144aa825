"""
title: verifiable rewards are carried in bfloat16 through GRPO's group baseline, where they are exact
expect: clean
thread: https://github.com/NVIDIA-NeMo/RL/pull/19
measured: baselines exact True first [0.375, 0.25, 0.375, 0.5] ; losses [-0.0, -0.00226, -0.00453, -0.00681, -0.00911]
suspect: 33 exact (zeros and ones, and eighths as their means)

Expectation, written first: rewards are zero or one and are cast to the generation dtype, bfloat16; the mean over a group of eight is a multiple of an
eighth, which bfloat16 holds exactly, and everything after (advantages, log-probabilities, loss) is float32. The baseline printed equals the one
taken in float64.
"""
import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, vocab=32, dim=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.body = nn.Linear(dim, dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        return self.lm_head(torch.tanh(self.body(self.embed(ids))))


class MathEnvironment:
    def __init__(self, answer=7):
        self.answer = answer

    def step(self, completions, dtype):
        correct = (completions[:, -1] % 3) == (self.answer % 3)
        return correct.to(dtype)


def group_baseline(rewards, group_size):
    groups = rewards.view(-1, group_size)
    return groups.mean(-1, keepdim=True).expand_as(groups).reshape(-1)


def clipped_pg_loss(logp, old_logp, advantages, clip=0.2):
    ratio = torch.exp(logp - old_logp)
    a = advantages[:, None]
    return -torch.minimum(ratio * a, ratio.clamp(1 - clip, 1 + clip) * a).mean()


def token_logprobs(model, ids):
    logp = model(ids[:, :-1]).float().log_softmax(-1)
    return logp.gather(-1, ids[:, 1:, None]).squeeze(-1)


def main():
    torch.manual_seed(6)
    policy, env, group_size = Policy(), MathEnvironment(), 8
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.5)
    completions = torch.randint(0, 32, (64, 9))
    rewards = env.step(completions, torch.bfloat16)
    baseline = group_baseline(rewards, group_size).float()
    check = rewards.double().view(-1, group_size).mean(-1).repeat_interleave(group_size)
    advantages = rewards.float() - baseline
    old = token_logprobs(policy, completions).detach()
    losses = []
    for _ in range(5):
        loss = clipped_pg_loss(token_logprobs(policy, completions), old, advantages)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 5))
    print("baselines exact", bool((baseline.double() == check).all()), "first", baseline[::8].tolist()[:4])
    print("losses", losses)


main()
