"""
title: the PPO ratio is not 1 on the first update, because the old logprobs come from bfloat16 logits
expect: silent:precision-loss|downcast
thread: https://github.com/InternLM/xtuner/pull/1108
measured: ratio min 0.9633 max 1.0397 | clipped 52.3% loss 0.0007 advantage sum 0.0
widened: ratio min 1.0000 max 1.0000 | clipped 0.0% loss -0.0000 advantage sum 0.0; innocent: ratio min 0.9633 max 1.0397 | clipped 52.3% loss 0.0007 advantage sum 0.0
suspect: line 50 - innocent: the advantages are multiples of one half, exact in bfloat16

Expectation, written first: without a loss context the head hands out its bfloat16 logits, and the rollout's
log_softmax stays in bfloat16, while the loss context converts to float32 first. The same weights then give two
different logprobs, so ratios scatter by a percent or two and some are clipped. Cast the logits and the ratio is 1.
"""
import torch
import torch.nn.functional as F
from torch import nn


class LossContext:
    def __init__(self, labels, old_logprobs, advantages, cliprange=0.01):
        self.labels = labels
        self.old_logprobs = old_logprobs
        self.advantages = advantages
        self.cliprange = cliprange

    def forward(self, hidden_states, weight):
        logits = F.linear(hidden_states, weight).float()
        logprobs = gather_logprobs(logits, self.labels)
        ratio = (logprobs - self.old_logprobs.float()).exp()
        clipped = ratio.clamp(1 - self.cliprange, 1 + self.cliprange)
        adv = self.advantages.float()
        loss = -torch.min(ratio * adv, clipped * adv).mean()
        return loss, ratio.detach()


class LMHead(nn.Linear):
    def forward(self, hidden_states, loss_ctx=None):
        if loss_ctx is None:
            logits = F.linear(hidden_states, self.weight)
            return None, logits  # BORN
        return loss_ctx.forward(hidden_states, self.weight)


def gather_logprobs(logits, labels):
    logprobs = torch.log_softmax(logits, dim=-1)  # BORN
    return logprobs.gather(-1, labels.unsqueeze(-1)).squeeze(-1)


def group_advantages(rewards):
    centred = rewards - rewards.median(dim=-1, keepdim=True).values
    return centred.to(torch.bfloat16)


class TinyPolicy(nn.Module):
    def __init__(self, vocab=512, dim=64):
        super().__init__()
        self.body = nn.Embedding(vocab, dim)
        self.head = LMHead(dim, vocab, bias=False)
        nn.init.normal_(self.head.weight, std=0.35)

    def forward(self, ids, loss_ctx=None):
        return self.head(torch.tanh(self.body(ids)), loss_ctx)


def main():
    torch.manual_seed(4)
    policy = TinyPolicy().to(torch.bfloat16)
    ids = torch.randint(0, 512, (4, 65))
    inputs, labels = ids[:, :-1], ids[:, 1:]
    with torch.no_grad():
        _, logits = policy(inputs)
        old_logprobs = gather_logprobs(logits, labels)
    rewards = torch.tensor([[1.0, 0.5, 0.0, 0.5]])
    advantages = group_advantages(rewards).reshape(4, 1).expand(4, 64)
    loss, ratio = policy(inputs, LossContext(labels, old_logprobs, advantages))
    loss.backward()
    print(f"ratio min {ratio.min():.4f} max {ratio.max():.4f}")
    print(f"clipped {((ratio - 1).abs() > 0.01).float().mean():.1%} loss {loss.item():.4f} advantage sum {advantages.sum():.1f}")


if __name__ == "__main__":
    main()
