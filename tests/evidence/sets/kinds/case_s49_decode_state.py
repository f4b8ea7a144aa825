"""
title: the recurrent state is written back in the model's dtype at every decoded token
expect: silent:lost-update|precision-loss|downcast|round-trip
thread: https://github.com/ml-explore/mlx-lm/pull/988

Expectation, written first: a state that decays by 0.9995 a token and is refreshed by little is rounded back to where it
was; after a thousand tokens it is far from what prefill computes. The logits in half only choose the word.
"""
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.inp, self.out = nn.Linear(dim, dim), nn.Linear(dim, 40)
        self.register_buffer("decay", torch.full((dim,), 0.9995))

    def prefill(self, x):
        state = torch.zeros(x.shape[0], x.shape[2])
        for t in range(x.shape[1]):
            state = self.decay * state + (1 - self.decay) * torch.tanh(self.inp(x[:, t]))
        return state

    def step(self, x, state):
        new = self.decay * state.float() + (1 - self.decay) * torch.tanh(self.inp(x))
        logits = self.out(new).half()
        return logits, new.to(state.dtype)


class Cache:
    def __init__(self, batch, dim, dtype=torch.bfloat16):
        self.state = torch.zeros(batch, dim, dtype=dtype)  # BORN


class Generator:
    def __init__(self, block):
        self.block = block.eval()

    @torch.no_grad()
    def run(self, x):
        cache = Cache(x.shape[0], x.shape[2])
        for t in range(x.shape[1]):
            logits, cache.state = self.block.step(x[:, t], cache.state)
        return logits, cache.state


torch.manual_seed(0)
block = Block()
x = torch.randn(4, 1200, 24) * 0.3 + 1.0
logits, state = Generator(block).run(x)
with torch.no_grad():
    exact = block.prefill(x)
print(f"state off by {100 * ((state.float() - exact).norm() / exact.norm()).item():.1f}%")
