"""
title: loss over accumulation steps divided by a token counter kept in bf16
expect: silent:lost-update
thread: https://github.com/NVIDIA-NeMo/Automodel/pull/341
measured: mean token loss 16.687 (log vocab is 4.382)
widened: mean token loss 4.557 (log vocab is 4.382)
fix_at: 36

Expectation, written first: the counter of valid tokens is bf16 and stands still once a
micro-batch is less than half a step of it, so the loss is divided by far too few tokens
and looks several times too large. The per-token losses are bf16 too, which costs a
percent at most.
"""
import torch
from torch import nn


class TinyLM(nn.Module):
    def __init__(self, vocab=80, dim=24):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.out = nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.out(self.emb(ids))


def token_losses(logits, labels, dtype):
    ce = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none", ignore_index=-100)
    return ce.to(dtype)


class StepMeter:
    def __init__(self, count_dtype):
        self.loss_sum = 0.0
        self.tokens = torch.zeros((), dtype=count_dtype)

    def add(self, losses, labels):
        self.loss_sum += losses.double().sum().item()
        self.tokens += (labels != -100).sum().to(self.tokens.dtype)

    def mean(self):
        return self.loss_sum / self.tokens.item()


def micro_batches(n, gen):
    for _ in range(n):
        ids = torch.randint(0, 80, (1, 24), generator=gen)
        labels = ids.roll(-1, 1)
        labels[:, 20:] = -100
        yield ids, labels


@torch.no_grad()
def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    model = TinyLM()
    meter = StepMeter(count_dtype=torch.bfloat16)  # BORN
    for ids, labels in micro_batches(1500, gen):
        losses = token_losses(model(ids), labels, dtype=torch.bfloat16)
        meter.add(losses, labels)
    print(f"mean token loss {meter.mean():.3f} (log vocab is {torch.tensor(80.).log().item():.3f})")


main()
