"""
title: four micro-batches are added up in a bfloat16 gradient buffer
expect: clean
thread: https://github.com/AI-Hypercomputer/maxtext/pull/5039
measured: loss after 100 steps 0.40

Expectation, written first: with four terms of like size nothing is dropped, the sum is off by a fraction of a percent
at random, and the masters and moments are float32; the losses agree with those of a float32 buffer to three digits.
"""
import torch
import torch.nn.functional as F
from torch import nn


class TinyDecoder(nn.Module):
    def __init__(self, vocab=48, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.mix = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        return self.head(self.mix(self.embed(ids))[0])


class Carry:
    """the accumulation carry of the train step; its dtype is a configuration entry"""

    def __init__(self, params, grad_dtype):
        self.params = list(params)
        self.sum = [torch.zeros_like(p, dtype=grad_dtype) for p in self.params]

    def add(self):
        for s, p in zip(self.sum, self.params):
            s += p.grad.to(s.dtype)
            p.grad = None

    def mean(self, count):
        for s, p in zip(self.sum, self.params):
            p.grad = s.float() / count
            s.zero_()


class Synthetic:
    """counting sequences with a random start and stride"""

    def __init__(self, seed, vocab=48):
        self.gen, self.vocab = torch.Generator().manual_seed(seed), vocab

    def batch(self, n, length=12):
        start = torch.randint(0, self.vocab, (n, 1), generator=self.gen)
        stride = torch.randint(1, 4, (n, 1), generator=self.gen)
        return (start + stride * torch.arange(length)) % self.vocab


def loss_of(model, ids):
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def main(grad_dtype=torch.bfloat16):
    torch.manual_seed(0)
    model, data = TinyDecoder(), Synthetic(seed=4)
    carry = Carry(model.parameters(), grad_dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(100):
        for _ in range(4):
            loss_of(model, data.batch(8)).backward()
            carry.add()
        carry.mean(4)
        optimizer.step()
    with torch.no_grad():
        final = loss_of(model, Synthetic(seed=9).batch(256)).item()
    print(f"loss after 100 steps {final:.2f}")


main()
