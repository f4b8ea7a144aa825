"""
title: the importance-sampling gate throws valid tokens out although the two policies agree
expect: silent:precision-loss
thread: https://github.com/OpenRLHF/OpenRLHF/pull/1354
measured: rejected share 0.46 tokens with gradient 0.54 loss -0.255
widened: rejected share 0.00 tokens with gradient 1.00 loss -0.469; innocent: rejected share 0.46 tokens with gradient 0.54 loss -0.255
suspect: 55 exact (advantages are -1, 0.5 or 1)

Expectation, written first: the Bernoulli KL of two nearly equal log-probabilities is a difference of terms near 0.3 whose
true value is 1e-9; in float32 the rounding of 3e-8 wins and half of the values are negative, below the gate's lower
bound 0. Remedy: float64 (or clamp) for the KL. The advantages in bfloat16 are exact.
"""
import torch
from torch import nn


def binary_kl(rollout_log_probs, log_probs):
    rollout_log_probs, log_probs = rollout_log_probs.float(), log_probs.float()  # BORN
    p, q = rollout_log_probs.exp(), log_probs.exp()  # BORN
    kept = p * (rollout_log_probs - log_probs)  # BORN
    other = (1 - p) * (torch.log1p(-p) - torch.log1p(-q))  # BORN
    return kept + other  # BORN


class VLLMISGate:
    def __init__(self, kind="binary_kl", low=0.0, high=0.05):
        self.kind, self.low, self.high = kind, low, high

    def __call__(self, rollout_log_probs, log_probs):
        stat = binary_kl(rollout_log_probs, log_probs)  # BORN
        return (stat >= self.low) & (stat <= self.high)


class PolicyLoss(nn.Module):
    def __init__(self, clip_eps, gate):
        super().__init__()
        self.clip_eps, self.gate = clip_eps, gate

    def forward(self, log_probs, old_log_probs, advantages, rollout_log_probs, action_mask):
        ratio = (log_probs - old_log_probs).exp()
        surr1 = ratio * advantages
        surr2 = ratio.clamp(1 - self.clip_eps, 1 + self.clip_eps) * advantages
        loss = -torch.min(surr1, surr2)
        gate = self.gate(rollout_log_probs, log_probs.detach())
        loss = loss * gate
        rejected = 1 - (gate & action_mask).sum() / action_mask.sum()
        return (loss * action_mask).sum() / action_mask.sum(), rejected.item()


def make_experience(generator, batch=16, length=64):
    rollout = -0.2 - 1.5 * torch.rand(batch, length, generator=generator)
    drift = 4e-5 * torch.randn(batch, length, generator=generator)
    action_mask = torch.arange(length).expand(batch, -1) < 56
    choice = torch.randint(0, 3, (batch, 1), generator=generator)
    advantages = torch.tensor([-1.0, 0.5, 1.0])[choice].to(torch.bfloat16)
    return rollout, (rollout + drift), advantages.float(), action_mask


def main():
    generator = torch.Generator().manual_seed(1354)
    rollout, train, advantages, mask = make_experience(generator)
    log_probs = train.clone().requires_grad_()
    loss, rejected = PolicyLoss(0.2, VLLMISGate())(log_probs, train, advantages, rollout, mask)
    loss.backward()
    alive = (log_probs.grad != 0).sum() / mask.sum()
    print(f"rejected share {rejected:.2f} tokens with gradient {alive:.2f} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
