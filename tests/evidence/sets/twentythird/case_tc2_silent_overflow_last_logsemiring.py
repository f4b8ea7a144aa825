"""
title: the log semiring sums shifted exponentials in float16, a wide lattice has weight inf and no gradient
expect: silent:overflow
thread: https://github.com/google-research/last/pull/43
measured: log denominator [inf, inf] | bias gradient sum 0.0000, largest 0.00e+00
widened: log denominator [37.38, 37.38] | bias gradient sum 3.0001, largest 9.23e-03
innocent: log denominator [inf, inf] | bias gradient sum 0.0000, largest 0.00e+00
suspect: line 25, the maximum is one of the half inputs, hence exact

Expectation, written first: Log.sum subtracts the maximum and adds up the exponentials in the dtype of the weights. More than 65504 arcs of
similar weight exceed float16, the sum is inf, its log inf, and the backward pass gives zero. Summing in float32 cures it; the maximum
that is kept in half is one of the inputs and exact.
"""
import torch
from torch import nn


class Log:
    @staticmethod
    def zeros(shape, dtype):
        return torch.full(shape, float("-inf"), dtype=dtype)

    @staticmethod
    def sum(a, dim):
        m = a.detach().amax(dim, keepdim=True).to(torch.float16)
        shifted = torch.exp(a - m.to(a.dtype))  # BORN
        total = shifted.sum(dim, keepdim=True)  # BORN
        return (torch.log(total) + m.to(a.dtype)).squeeze(dim)

    @staticmethod
    def times(a, b):
        return a + b


class FullNGram:
    def __init__(self, vocab_size, context_size):
        self.vocab_size = vocab_size
        self.num_states = vocab_size ** context_size

    def forward_reduce(self, weights, semiring):
        return semiring.sum(weights.reshape(*weights.shape[:-2], -1), -1)


class WeightFn(nn.Module):
    def __init__(self, feat, states, vocab):
        super().__init__()
        self.state = nn.Embedding(states, feat)
        self.out = nn.Linear(feat, vocab)
        nn.init.normal_(self.state.weight, std=0.1)

    def forward(self, frames):
        h = torch.tanh(frames[:, :, None] + self.state.weight)
        return self.out(h)


class RecognitionLattice:
    def __init__(self, context, weight_fn, dtype):
        self.context, self.weight_fn, self.dtype = context, weight_fn, dtype

    def denominator(self, frames):
        weights = self.weight_fn(frames).to(self.dtype)  # BORN
        per_frame = self.context.forward_reduce(weights, Log)
        total = per_frame[:, 0]
        for t in range(1, per_frame.shape[1]):
            total = Log.times(total, per_frame[:, t])
        return total.float()


torch.manual_seed(0)
context = FullNGram(vocab_size=500, context_size=1)
fn = WeightFn(8, context.num_states, context.vocab_size)
lattice = RecognitionLattice(context, fn, torch.float16)  # BORN
frames = torch.randn(2, 3, 8) * 0.2
den = lattice.denominator(frames)
loss = den.mean()
loss.backward()
grad = fn.out.bias.grad
print("log denominator", [round(v, 2) for v in den.tolist()])
print("bias gradient sum %.4f, largest %.2e" % (float(grad.sum()), float(grad.abs().max())))
