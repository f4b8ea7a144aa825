"""
title: finetuning a half text encoder with a plain Adam whose state is half
expect: silent:underflow|overflow
thread: https://github.com/afiaka87/glide-finetune/pull/6
measured: loss nan, ruined embedding rows 200 of 200
widened: loss 0.2259, ruined embedding rows 0 of 200

Expectation, written first: the second moment is half like the parameter; squares of
small gradients underflow and 1e-8 is zero in half, so untouched rows become 0/0. With
the second moment in float32 the table stays finite.
"""
import torch
from torch import nn


class PlainAdam:
    def __init__(self, params, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8):
        self.params = [p for p in params if p.requires_grad]
        self.lr, self.b1, self.b2, self.eps, self.t = lr, b1, b2, eps, 0
        self.exp_avg = [torch.zeros_like(p) for p in self.params]
        self.exp_avg_sq = [torch.zeros_like(p) for p in self.params]  # BORN

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self):
        self.t += 1
        for p, m, v in zip(self.params, self.exp_avg, self.exp_avg_sq):
            m.mul_(self.b1).add_(p.grad, alpha=1 - self.b1)
            v.mul_(self.b2).add_((1 - self.b2) * p.grad.to(v.dtype) ** 2)
            denom = (v / (1 - self.b2 ** self.t)).sqrt().add_(self.eps)
            p.sub_((self.lr / (1 - self.b1 ** self.t) * m / denom).to(p.dtype))


class TextEncoder(nn.Module):
    def __init__(self, vocab=200, dim=16):
        super().__init__()
        self.tokens = nn.Embedding(vocab, dim)
        self.out = nn.Linear(dim, 8)

    def forward(self, ids):
        return self.out(self.tokens(ids).mean(1))


def main():
    torch.manual_seed(0)
    model = TextEncoder().half()  # BORN
    opt = PlainAdam(model.parameters())
    for step in range(5):
        ids = torch.randint(0, 40, (16, 6))
        target = torch.nn.functional.one_hot(ids[:, 0] % 8, 8).float()
        loss = (model(ids).float() - target).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    bad = (~torch.isfinite(model.tokens.weight)).any(1).sum().item()
    print(f"loss {loss.item():.4f}, ruined embedding rows {bad} of 200")


main()
