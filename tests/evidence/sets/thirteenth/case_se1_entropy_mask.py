"""
title: a policy trainer masks all but the most uncertain tokens of its completions
expect: collision
thread: https://github.com/huggingface/trl/issues/3666
fix_at: 23, 35, 43, 44, 50, 54, 55, 58, 59, 63, 64

Expectation, written first: the policy is held in bfloat16, so its logits and the entropies taken from them are
bfloat16 too; the threshold is a quantile of them, and quantile takes float and double only.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    vocab: int = 40
    hidden: int = 32
    top_entropy_quantile: float = 0.3
    learning_rate: float = 1e-3
    model_dtype: torch.dtype = torch.bfloat16  # BORN


class Policy(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(config.vocab, config.hidden)
        self.mix = nn.Linear(config.hidden, config.hidden)
        self.lm_head = nn.Linear(config.hidden, config.vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        return self.lm_head(x + F.silu(self.mix(x.cumsum(1) / 8)))


def selective_log_softmax(logits, index):
    return logits.log_softmax(-1).gather(-1, index[..., None]).squeeze(-1)


def entropy_from_logits(logits):
    logps = F.log_softmax(logits, dim=-1)
    return -(torch.exp(logps) * logps).sum(-1)


class Trainer:
    def __init__(self, config):
        self.config = config
        self.model = Policy(config).to(config.model_dtype)  # BORN
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=config.learning_rate)

    def get_per_token_logps_and_entropies(self, ids):
        logits = self.model(ids[:, :-1])
        return selective_log_softmax(logits, ids[:, 1:]), entropy_from_logits(logits.detach())

    def get_high_entropy_mask(self, entropies, mask, threshold):
        non_pad = entropies[mask.bool()]
        bound = torch.quantile(non_pad, threshold)  # COLLIDES
        return (entropies * mask >= bound) & mask.bool()

    def compute_loss(self, ids, mask, advantages):
        logps, entropies = self.get_per_token_logps_and_entropies(ids)
        keep = self.get_high_entropy_mask(entropies, mask, 1 - self.config.top_entropy_quantile)
        per_token = -advantages[:, None] * torch.exp(logps - logps.detach())
        return (per_token * keep).sum() / keep.sum().clamp(min=1), keep

    def train(self, batches):
        for ids, mask, advantages in batches:
            loss, keep = self.compute_loss(ids, mask, advantages)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item(), keep.float().mean().item()


def rollouts(config, n=3, batch=6, length=16):
    gen = torch.Generator().manual_seed(5)
    for _ in range(n):
        ids = torch.randint(config.vocab, (batch, length), generator=gen)
        lengths = torch.randint(6, length, (batch, 1), generator=gen)
        mask = (torch.arange(length - 1) < lengths).long()
        rewards = torch.randn(batch, generator=gen)
        yield ids, mask, (rewards - rewards.mean()) / rewards.std()


if __name__ == "__main__":
    torch.manual_seed(0)
    trainer = Trainer(Config())
    loss, kept = trainer.train(rollouts(trainer.config))
    print(f"loss {loss:.3f}, kept {kept:.2f}")
