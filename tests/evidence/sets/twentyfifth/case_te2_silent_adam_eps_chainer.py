"""
title: embedding rows that were not in the batch turn to NaN under Adam
expect: silent:underflow|optimizer-state|weights-dtype
thread: https://github.com/chainer/chainer/issues/6299
measured: words not in the data 16 rows with NaN 16
widened: words not in the data 16 rows with NaN 0; innocent: words not in the data 16 rows with NaN 16
suspect: 51 exact (targets are zero or one)

Expectation, written first: the parameters and so the moments are half; eps 1e-8 is zero there, a row without gradient
has m = v = 0 and its step is 0/0. Those rows are NaN after one step. Remedy: float32 parameters or moments. The 0/1
targets in half are exact.
"""
import torch
from torch import nn


class AdamRule:
    def __init__(self, alpha=1e-2, beta1=0.9, beta2=0.999, eps=1e-8):
        self.alpha, self.beta1, self.beta2, self.eps = alpha, beta1, beta2, eps
        self.state = {}

    @torch.no_grad()
    def update(self, param):
        if param not in self.state:
            self.state[param] = [0, torch.zeros_like(param), torch.zeros_like(param)]  # BORN
        state = self.state[param]
        state[0] += 1
        t, m, v = state
        grad = param.grad.to(m.dtype)
        m += (1 - self.beta1) * (grad - m)
        v += (1 - self.beta2) * (grad * grad - v)
        fix = (1 - self.beta2 ** t) ** 0.5 / (1 - self.beta1 ** t)
        param -= (self.alpha * fix * m / (v.sqrt() + self.eps)).to(param.dtype)  # BORN


class Classifier(nn.Module):
    def __init__(self, vocab=60, dim=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.out = nn.Linear(dim, 1)

    def forward(self, ids):
        return self.out(self.embed(ids).float().mean(dim=1).to(self.out.weight.dtype)).squeeze(-1)


def main():
    torch.manual_seed(6299)
    model = Classifier().to(torch.float16)  # BORN
    rule = AdamRule()  # BORN
    ids = torch.randint(0, 45, (32, 6))
    target = (ids.sum(dim=1) % 2).to(torch.float16)
    for _ in range(3):
        loss = nn.functional.binary_cross_entropy_with_logits(model(ids).float(), target.float())
        model.zero_grad()
        (loss * 2048).backward()
        for param in model.parameters():
            rule.update(param)
    bad = torch.isnan(model.embed.weight).any(dim=1).sum().item()
    unused = 60 - ids.unique().numel()
    print(f"words not in the data {unused} rows with NaN {bad}")


main()
