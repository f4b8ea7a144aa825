"""
title: after a loss spike the second moment never comes down and training stalls
expect: silent:lost-update|optimizer-state|precision-loss|downcast
thread: https://github.com/karpathy/llm.c/pull/772
measured: loss 11.2 mean second moment 4046
widened: loss 0.1 mean second moment 77; innocent: loss 11.2 mean second moment 4046
suspect: 52 exact (1/64 is a power of two)

Expectation, written first: v is kept in bfloat16 and rounded to nearest; a decay by 0.999 is less than half an ulp, so v
keeps the value of the first large gradients and the steps stay tiny. Remedy: float32 moments (or stochastic rounding).
The gradient scale in bfloat16 is exact.
"""
import torch
from torch import nn


class OptimizerConfig:
    learning_rate = 1e-2
    beta1, beta2 = 0.9, 0.999
    eps = 1e-8
    state_dtype = torch.bfloat16  # BORN


class AdamW:
    def __init__(self, params, cfg):
        self.params, self.cfg, self.t = list(params), cfg, 0
        self.m = [torch.zeros_like(p, dtype=torch.float32) for p in self.params]
        self.v = [torch.zeros_like(p, dtype=cfg.state_dtype) for p in self.params]  # BORN

    @torch.no_grad()
    def step(self, grad_scale):
        self.t += 1
        c = self.cfg
        for p, m, v in zip(self.params, self.m, self.v):
            grad = p.grad * grad_scale.float()
            m.lerp_(grad, 1 - c.beta1)
            v32 = v.float() * c.beta2 + (1 - c.beta2) * grad * grad
            v.copy_(v32)  # BORN
            m_hat = m / (1 - c.beta1 ** self.t)
            v_hat = v.float() / (1 - c.beta2 ** self.t)
            p -= c.learning_rate * m_hat / (v_hat.sqrt() + c.eps)


def make_task(generator):
    x = torch.randn(128, 8, generator=generator)
    w = 3 + torch.rand(8, 1, generator=generator)
    return x, x @ w


def train(model, x, y, cfg, steps=4000):
    optimizer = AdamW(model.parameters(), cfg)  # BORN
    grad_scale = torch.tensor(1 / 64, dtype=torch.bfloat16)
    for step in range(steps):
        spike = 150.0 if step < 5 else 1.0
        loss = (model(x) - y).square().mean()
        model.zero_grad()
        (loss * 64 * spike).backward()
        optimizer.step(grad_scale)
    return loss.item(), optimizer.v[0].float().mean().item()


def main():
    torch.manual_seed(772)
    generator = torch.Generator().manual_seed(772)
    x, y = make_task(generator)
    model = nn.Linear(8, 1, bias=False)
    loss, v = train(model, x, y, OptimizerConfig())
    print(f"loss {loss:.1f} mean second moment {v:.0f}")


main()
