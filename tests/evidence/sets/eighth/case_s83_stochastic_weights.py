"""
title: bf16 weights that are moved by stochastic rounding
expect: clean
thread: https://github.com/pytorch/ao/pull/1124

Expectation, written first: the weights are bf16 and each step is far below their
resolution, which looks fatal, but the write-back rounds up or down at random with the right
probability, so on average the weights move as in float32. Nothing is to be changed; with
float32 weights the printed figures are the same to the digits that matter.
"""
import torch
from torch import nn


class StochasticSGD:
    """Keeps bf16 weights; the exact new value is rounded at random."""

    def __init__(self, params, lr, seed):
        self.params, self.lr = list(params), lr
        self.gen = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def step(self):
        for p in self.params:
            exact = p.float() - self.lr * p.grad.float()
            p.copy_(self.round(exact, p.dtype))

    def round(self, exact, dtype):
        if dtype == torch.float32:
            return exact
        bits = exact.view(torch.int32)
        noise = torch.randint(0, 1 << 16, bits.shape, generator=self.gen, dtype=torch.int32)
        return ((bits + noise) & -65536).view(torch.float32).to(dtype)


class Scales(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width, dtype=torch.bfloat16))

    def forward(self, x):
        return x * self.scale.float()


def main():
    torch.manual_seed(0)
    wanted = torch.linspace(0.8, 1.2, 512)
    model = Scales(512)
    opt = StochasticSGD(model.parameters(), lr=5e-4, seed=0)
    for _ in range(6000):
        x = torch.rand(512) + 0.5
        loss = (model(x) - x * wanted).square().sum()
        model.scale.grad = None
        loss.backward()
        opt.step()
    error = (model.scale.detach().float() - wanted).mean().item()
    print("moved %.0f%%, mean error %.2f" % (100 * (model.scale != 1).float().mean().item(), abs(error)))


if __name__ == "__main__":
    main()
