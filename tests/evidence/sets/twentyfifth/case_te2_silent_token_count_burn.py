"""
title: the loss per token of a big batch is zero
expect: silent:overflow
thread: https://github.com/tracel-ai/burn/issues/4109
measured: tokens 14400 loss per token 4.653 / tokens 72000 loss per token 0.000
widened: tokens 14400 loss per token 4.653 / tokens 72000 loss per token 4.655; innocent: tokens 14400 loss per token 4.653 / tokens 72000 loss per token 0.000
suspect: 47 exact (there are 90 classes)

Expectation, written first: the mask of ones is half like the activations; its sum over 72000 tokens is beyond 65504 and
becomes infinite, so the summed loss divided by it is 0. A small batch is right. Remedy: sum the mask in float32. The
labels in int8 are exact.
"""
import torch
import torch.nn.functional as F
from torch import nn


class LearnerConfig:
    precision = torch.float16
    num_classes = 90
    dim = 8


class Tagger(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(200, cfg.dim)
        self.head = nn.Linear(cfg.dim, cfg.num_classes)

    def forward(self, ids):
        return self.head(self.embed(ids))


class MaskedLoss:
    def __init__(self, precision):
        self.precision = precision

    def __call__(self, logits, labels, mask):
        nll = F.cross_entropy(logits.flatten(0, 1), labels.flatten().long(), reduction="none")
        weights = mask.to(self.precision).flatten()  # BORN
        total = (nll * weights.float()).sum()
        return total / weights.sum().float()  # BORN


def make_batch(batch, length, generator):
    ids = torch.randint(0, 200, (batch, length), generator=generator)
    labels = (ids % 90).to(torch.int8)
    lengths = torch.full((batch, 1), length - 20)
    mask = torch.arange(length)[None] < lengths
    return ids, labels, mask


@torch.no_grad()
def main():
    torch.manual_seed(4109)
    generator = torch.Generator().manual_seed(1)
    cfg = LearnerConfig()
    model = Tagger(cfg)
    criterion = MaskedLoss(cfg.precision)  # BORN
    for batch in (30, 150):
        ids, labels, mask = make_batch(batch, 500, generator)
        loss = criterion(model(ids), labels, mask)
        print(f"tokens {int(mask.sum())} loss per token {loss:.3f}")


main()
