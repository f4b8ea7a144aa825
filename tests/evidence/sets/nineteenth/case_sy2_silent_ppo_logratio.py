"""
title: PPO's ratio differs from 1 before any step: the new log-probs are taken in bf16
expect: silent:precision-loss|downcast|cancellation
thread: https://github.com/jingyaogong/minimind/pull/814
measured: first minibatch, weights untouched | max|log_ratio| 0.0374 clipfrac 0.30 approx_kl 0.0051
widened: first minibatch, weights untouched | max|log_ratio| 0.0000 clipfrac 0.00 approx_kl 0.0000
innocent: first minibatch, weights untouched | max|log_ratio| 0.0374 clipfrac 0.30 approx_kl 0.0051
suspect: 56 a-factor

Expectation, written first: The rollout takes its log-softmax of the logits in float32, the update takes it of the same logits in bf16, so the difference of
the two log-probs is rounding noise of some hundredths per token; over a whole response the ratio leaves the clip range although
no weight moved. The advantages stored in bf16 are wrong by a third of a percent at most and leave the clipping as it is.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class MiniMindActor(nn.Module):
    def __init__(self, vocab=400, hidden=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.mlp = nn.Sequential(nn.Linear(hidden, 128), nn.SiLU(), nn.Linear(128, hidden))
        self.lm_head = nn.Linear(hidden, vocab, bias=False)
        nn.init.normal_(self.lm_head.weight, std=0.25)

    def forward(self, ids):
        h = self.embed(ids)
        return self.lm_head(h + self.mlp(h))


@torch.no_grad()
def compute_per_token_logps(actor, ids):
    logits = actor(ids[:, :-1])
    logps = F.log_softmax(logits.float(), dim=-1)
    return logps.gather(-1, ids[:, 1:, None]).squeeze(-1)


def new_resp_logps(actor, ids):
    logits = actor(ids[:, :-1])  # BORN
    logps = F.log_softmax(logits, dim=-1)  # BORN
    return logps.gather(-1, ids[:, 1:, None]).squeeze(-1)


@torch.no_grad()
def rollout(actor, batch, length):
    ids = torch.randint(0, 400, (batch, 1))
    for _ in range(length):
        probs = actor(ids[:, -1]).float().softmax(-1)
        ids = torch.cat([ids, torch.multinomial(probs, 1)], dim=1)
    return ids


def whiten(rewards):
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
    advantages = advantages.to(torch.bfloat16)
    return advantages


def ppo_policy_loss(new_logp, old_logp, advantages, clip=0.1):
    log_ratio = (new_logp - old_logp).sum(dim=1)
    ratio = log_ratio.exp()
    surrogate = torch.min(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
    stats = {
        "log_ratio": (new_logp - old_logp).abs().max().item(),
        "clipfrac": ((ratio - 1).abs() > clip).float().mean().item(),
        "approx_kl": ((ratio - 1) - log_ratio).mean().item(),
    }
    return -surrogate.mean(), stats


def main():
    torch.manual_seed(0)
    actor = MiniMindActor().to(torch.bfloat16)
    ids = rollout(actor, batch=64, length=160)
    old_logp = compute_per_token_logps(actor, ids)
    rewards = (ids[:, 1:] % 7 == 0).float().sum(dim=1)
    loss, stats = ppo_policy_loss(new_resp_logps(actor, ids), old_logp, whiten(rewards))
    loss.backward()
    print("first minibatch, weights untouched")
    print(f"max|log_ratio| {stats['log_ratio']:.4f} clipfrac {stats['clipfrac']:.2f} approx_kl {stats['approx_kl']:.4f}")


if __name__ == "__main__":
    main()
