"""
title: A gradient accumulation carry in bf16 over four micro-batches: the loss curve stays the same
expect: clean
thread: https://github.com/AI-Hypercomputer/maxtext/pull/5039
measured: loss 4.32 3.95 3.49 3.11 2.74 2.35  (with the suspect widened: loss 4.32 3.95 3.49 3.11 2.74 2.35)
suspect: 79 four-addends

Expectation, written first: The carry that sums the gradients of the micro-batches is bf16, which looks like the known loss of small addends. With four micro-batches
no addend is small against the sum, each addition errs by a fraction of a percent at random, the masters are float32, and Adam divides the scale
out; the losses agree to the printed digits.
"""
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    vocab_size: int = 64
    base_emb_dim: int = 32
    gradient_accumulation_steps: int = 4
    per_device_batch_size: int = 8
    learning_rate: float = 3e-3
    grad_dtype: torch.dtype = torch.float32


class DecoderBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        d = config.base_emb_dim
        self.embed = nn.Embedding(config.vocab_size, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.norm = nn.LayerNorm(d)
        self.logits = nn.Linear(d, config.vocab_size, bias=False)

    def forward(self, tokens):
        h = self.embed(tokens)
        return self.logits(self.norm(h + self.mlp(h)))


def synthetic_batch(config, generator, length=32):
    tokens = torch.randint(0, config.vocab_size, (config.per_device_batch_size, length), generator=generator)
    targets = (tokens * 5 + 3) % config.vocab_size
    return tokens, targets


def gradient_accumulation_loss_and_grad(config, model, generator):
    params = list(model.parameters())
    carry = [torch.zeros_like(p, dtype=config.grad_dtype) for p in params]
    total = 0.0
    for _ in range(config.gradient_accumulation_steps):
        tokens, targets = synthetic_batch(config, generator)
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        for acc, g in zip(carry, torch.autograd.grad(loss, params)):
            acc.add_(g.to(acc.dtype))
        total += loss.item()
    grads = [acc.float() / config.gradient_accumulation_steps for acc in carry]
    return total / config.gradient_accumulation_steps, grads


def train(config, steps=16):
    torch.manual_seed(0)
    model = DecoderBlock(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(steps):
        loss, grads = gradient_accumulation_loss_and_grad(config, model, generator)
        for p, g in zip(model.parameters(), grads):
            p.grad = g
        optimizer.step()
        losses.append(loss)
    return losses


def main():
    losses = train(Config(grad_dtype=torch.bfloat16))
    print("loss", " ".join(f"{loss:.2f}" for loss in losses[::3]))


if __name__ == "__main__":
    main()
