"""
title: the number of words of a corpus, for the decay of the learning rate, is a 32-bit integer
expect: silent:overflow|integer-overflow|wraparound
thread: https://github.com/tensorflow/tensorflow/issues/2209
measured: rate at half time 0.00005, loss at the end 3.26
widened: rate at half time 0.25000, loss at the end 0.72

Expectation, written first: nine hundred million words times five epochs is more than 2**31, the total wraps to a small
number, and after one twentieth of the run the rate is at its floor. The vectors start as bfloat16 numbers, which only
rounds the random start.
"""
import torch
from torch import nn


class Corpus:
    def __init__(self, words, epochs):
        self.size = torch.tensor(words, dtype=torch.int32)  # BORN
        self.total = self.size * epochs  # BORN


class LinearDecay:
    def __init__(self, corpus, start=0.5, floor=1e-4):
        self.corpus, self.start, self.floor = corpus, start, floor

    def __call__(self, seen):
        rest = 1 - seen / self.corpus.total.item()
        return self.start * max(rest, self.floor)


class SkipGram(nn.Module):
    def __init__(self, vocab=60, width=8):
        super().__init__()
        gen = torch.Generator().manual_seed(0)
        start = torch.randn(2, vocab, width, generator=gen).to(torch.bfloat16).float()
        self.inside = nn.Parameter(0.3 * start[0])
        self.outside = nn.Parameter(0.3 * start[1])

    def forward(self, centre, context):
        logits = self.inside[centre] @ self.outside.T
        return nn.functional.cross_entropy(logits, context)


def pairs(gen, n=512, vocab=60):
    centre = torch.randint(0, vocab, (n,), generator=gen)
    context = (centre + torch.randint(1, 3, (n,), generator=gen)) % vocab
    return centre, context


def main():
    corpus = Corpus(900_000_000, epochs=5)
    decay = LinearDecay(corpus)
    model = SkipGram()
    gen = torch.Generator().manual_seed(1)
    blocks = 120
    rates, losses = [], []
    for block in range(blocks):
        rate = decay(4_500_000_000 * block // blocks)
        loss = model(*pairs(gen))
        grads = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for p, g in zip(model.parameters(), grads):
                p -= 40 * rate * g
        rates.append(rate)
        losses.append(loss.item())
    print(f"rate at half time {rates[blocks // 2]:.5f}, loss at the end {sum(losses[-5:]) / 5:.2f}")


main()
