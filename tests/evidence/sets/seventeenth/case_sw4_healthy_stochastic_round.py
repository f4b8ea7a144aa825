"""
title: a BF16 weight follows updates far below its step, since the write is rounded stochastically
expect: clean
thread: https://github.com/pytorch/ao/pull/1124
measured: mean weight after training 1.466  (with float64 in its place: mean weight after training 1.466)
suspect: 39 bf16 weight: unbiased (written with stochastic rounding from float32)

Expectation, written first: Weights are BF16 and an update of a thousandth of a step would be lost by rounding to nearest. The optimizer
    computes in float32 and the copy rounds up or down with the fitting probability, so the mean of the weights arrives where float64
    arrives.
"""
import torch
from torch import nn


def _fp32_to_bf16_sr(x, generator):
    bits = x.view(torch.int32)
    noise = torch.randint(0, 1 << 16, x.shape, dtype=torch.int32, generator=generator)
    return ((bits + noise) & -65536).view(torch.float32).to(torch.bfloat16)


class SGDStochasticRound:
    def __init__(self, params, lr, momentum=0.9, seed=0):
        self.params, self.lr, self.momentum = list(params), lr, momentum
        self.buf = [torch.zeros_like(p, dtype=torch.float32) for p in self.params]
        self.generator = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def step(self, grads):
        for p, g, b in zip(self.params, grads, self.buf):
            b.mul_(self.momentum).add_(g.float())
            new = p.float() - self.lr * b
            p.copy_(_fp32_to_bf16_sr(new, self.generator))


class Regressor(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim, dtype=torch.bfloat16))
    def forward(self, x):
        return x * self.weight.float()


def train(dim=4096, steps=1200, lr=4e-5):
    model, target = Regressor(dim), 1.75
    opt = SGDStochasticRound(model.parameters(), lr)
    gen = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = 1 + 0.1 * torch.randn(dim, generator=gen)
        loss = ((model(x) - target * x) ** 2).sum()
        opt.step(torch.autograd.grad(loss, [model.weight]))
    return model


torch.manual_seed(0)
model = train()
print(f"mean weight after training {model.weight.float().mean():.3f}")
