"""
title: a trainer that logs the loss as a difference of running totals
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/huggingface/transformers/pull/8561
measured: logged losses [1.245, 0.995, 0.34, 0.0, 0.06, 0.04, 0.02]
widened: logged losses [1.24, 1.025, 1.031, 1.015, 1.06, 1.038, 1.026]

Expectation, written first: the running total of the loss is bf16; once it is large
the small losses no longer change it, so the logged mean (difference of totals) drops to zero.
BORN is the dtype of the running total; float32 shows the true loss.
"""
import torch
from torch import nn


class NoisyLines:
    """Targets with a noise floor that no model can remove."""

    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.w = torch.randn(5, generator=self.gen)

    def batch(self, n=16):
        x = torch.randn(n, 5, generator=self.gen)
        y = x @ self.w + torch.randn(n, generator=self.gen)
        return x, y[:, None]


class Trainer:
    def __init__(self, model, data, lr=5e-2, every=200):
        self.model, self.data, self.every = model, data, every
        self.opt = torch.optim.SGD(model.parameters(), lr)
        self.total = torch.zeros((), dtype=torch.bfloat16)  # BORN
        self.logged = 0.0
        self.history = []

    def step(self):
        x, y = self.data.batch()
        loss = nn.functional.mse_loss(self.model(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.detach()

    def maybe_log(self, step):
        if step % self.every == 0:
            now = self.total.item()
            self.history.append((now - self.logged) / self.every)
            self.logged = now

    def train(self, steps):
        for step in range(1, steps + 1):
            self.total += self.step()
            self.maybe_log(step)
        return self.history


def main():
    torch.manual_seed(0)
    history = Trainer(nn.Linear(5, 1), NoisyLines(0)).train(1400)
    print("logged losses", [round(v, 3) for v in history])


if __name__ == "__main__":
    main()
