"""
title: the mean loss of a translation model, gathered by a metric bag
expect: silent:downcast|precision-loss|lost-update
thread: https://github.com/facebookresearch/fairseq2/pull/288
measured: mean loss per epoch [1.45, 0.3, 0.0]
widened: mean loss per epoch [1.949, 0.863, 0.325]

Expectation, written first: the metric that gathers the loss is an integer tensor, so
each batch loss is cut to a whole number before it is added. BORN is the integer factory of
the metric; a float one gives the mean. The bf16 of the single losses is a small rounding.
"""
import torch
from torch import nn


class CopyTask:
    def __init__(self, vocab, seed):
        self.vocab = vocab
        self.gen = torch.Generator().manual_seed(seed)

    def batch(self, size=8, length=6):
        source = torch.randint(0, self.vocab, (size, length), generator=self.gen)
        return source, (source + 1) % self.vocab


class Model(nn.Module):
    def __init__(self, vocab, width=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.out = nn.Linear(width, vocab)

    def forward(self, source):
        return self.out(torch.tanh(self.embed(source)))


class MetricBag:
    def __init__(self):
        self.loss = torch.zeros((), dtype=torch.int64)  # BORN
        self.batches = torch.zeros((), dtype=torch.int64)

    @torch.no_grad()
    def update(self, loss):
        self.loss += loss.detach().to(self.loss.dtype)
        self.batches += 1

    def mean(self):
        return (self.loss / self.batches).item()


class Criterion(nn.Module):
    def forward(self, logits, target):
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        return loss, loss.to(torch.bfloat16)


def main():
    torch.manual_seed(0)
    task, model, criterion = CopyTask(12, 0), Model(12), Criterion()
    opt = torch.optim.Adam(model.parameters(), 6e-3)
    means = []
    for epoch in range(3):
        bag = MetricBag()
        for _ in range(20):
            source, target = task.batch()
            loss, shown = criterion(model(source), target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            bag.update(shown)
        means.append(round(bag.mean(), 3))
    print("mean loss per epoch", means)


if __name__ == "__main__":
    main()
