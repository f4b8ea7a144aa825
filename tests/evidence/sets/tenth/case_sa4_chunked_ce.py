"""
title: a chunked cross-entropy adds up the head's gradient in bfloat16; its logits are bfloat16 too
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/linkedin/Liger-Kernel/pull/830
measured: gradient's length over the exact one 0.602, relative error 0.549
widened: gradient's length over the exact one 1.000, relative error 0.000

Expectation, written first: each of 4096 chunks adds a tiny part of the total to the running
gradient, later chunks fall below its step and are lost. Rounding the logits of a chunk to
bfloat16 is random and small; without it the gradient is as short as before.
"""
import torch
from torch import nn


class ChunkedCrossEntropy:
    def __init__(self, chunks, accum_dtype):
        self.chunks, self.accum_dtype = chunks, accum_dtype

    def grad_weight(self, hidden, weight, target):
        total = torch.zeros(weight.shape, dtype=self.accum_dtype)  # BORN
        for h, y in zip(hidden.chunk(self.chunks), target.chunk(self.chunks)):
            logits = (h @ weight.t()).to(torch.bfloat16).float()
            probs = logits.softmax(-1)
            probs[torch.arange(len(y)), y] -= 1
            total += (probs / len(hidden)).t() @ h
        return total.float()


def tokens(n, vocab, dim, gen):
    target = torch.multinomial(1.0 / torch.arange(1, vocab + 1), n, replacement=True, generator=gen)
    table = torch.randn(vocab, dim, generator=gen)
    return 1 + 0.3 * table[target] + 0.3 * torch.randn(n, dim, generator=gen), target


def exact_gradient(hidden, weight, target):
    w = weight.double().requires_grad_(True)
    loss = nn.functional.cross_entropy(hidden.double() @ w.t(), target)
    return torch.autograd.grad(loss, w)[0]


def main(n=8192, vocab=50, dim=24):
    gen = torch.Generator().manual_seed(0)
    hidden, target = tokens(n, vocab, dim, gen)
    weight = 0.05 * torch.randn(vocab, dim, generator=gen)
    loss = ChunkedCrossEntropy(4096, torch.bfloat16)  # BORN
    got = loss.grad_weight(hidden, weight, target).double()
    exact = exact_gradient(hidden, weight, target)
    print(f"gradient's length over the exact one {(got.norm() / exact.norm()).item():.3f}, relative error {((got - exact).norm() / exact.norm()).item():.3f}")


main()
