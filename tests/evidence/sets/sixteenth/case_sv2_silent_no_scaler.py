"""
title: training runs under float16 autocast and nothing scales the loss
expect: silent:underflow|zero-gradient|gradient-dtype|plan
thread: https://github.com/engichang1467/Open-Rig3R/issues/35
measured: validation error 0.015
widened: validation error 0.006

Expectation, written first: the loss is a mean over twenty thousand numbers with a small weight, its gradients inside
the region are below 6e-8 once the error is small, and the curve flattens early. The validation runs in the same
region without gradients, which is fine.
"""
import torch
from torch import nn


class Raymap(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, dim), nn.GELU(), nn.Linear(dim, dim), nn.GELU())
        self.head = nn.Linear(dim, 3)

    def forward(self, x):
        return self.head(self.body(x))


class Rays:
    def __init__(self, gen):
        self.gen = gen
        self.turn = torch.linalg.qr(torch.randn(3, 3, generator=gen))[0]

    def draw(self, n):
        x = torch.randn(n, 6, generator=self.gen) / 2
        y = torch.tanh(x[:, :3] @ self.turn) * 0.1 + 0.05 * x[:, 3:]
        return x, y


class Trainer:
    def __init__(self, model, lr, weight=0.01, dtype=torch.float16):  # BORN
        self.model = model
        self.opt = torch.optim.Adam(model.parameters(), lr=lr, eps=1e-12)
        self.weight, self.dtype = weight, dtype

    def train_step(self, x, y):
        with torch.autocast("cpu", dtype=self.dtype):  # BORN
            out = self.model(x)
        loss = self.weight * (out.float() - y).square().mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()

    @torch.no_grad()
    def validate(self, x, y):
        with torch.autocast("cpu", dtype=torch.float16):
            out = self.model(x)
        return (out.float() - y).square().mean().sqrt()


def main():
    torch.manual_seed(22)
    rays = Rays(torch.Generator().manual_seed(22))
    trainer = Trainer(Raymap(), lr=3e-3)
    for _ in range(120):
        trainer.train_step(*rays.draw(8192))
    print(f"validation error {trainer.validate(*rays.draw(4000)):.3f}")


main()
