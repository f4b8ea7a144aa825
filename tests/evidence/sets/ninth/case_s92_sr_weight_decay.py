"""
title: AdamW with stochastic rounding applies its weight decay on the bf16 weight
expect: silent:lost-update
thread: https://github.com/Nerogar/OneTrainer/issues/996
measured: norm of unused rows kept: 1.000
widened: norm of unused rows kept: 0.366

Expectation, written first: lr*wd is 1e-3, below half a step of bf16, so multiplying
the bf16 weight by 0.999 returns the weight; rows without gradient never shrink. In
float32, followed by the stochastic copy, they lose about 63 % in 1000 steps.
"""
import torch


def copy_stochastic_(target, source, gen):
    bits = source.view(torch.int32)
    noise = torch.randint(0, 1 << 16, source.shape, dtype=torch.int32, generator=gen)
    rounded = (bits + noise) & -65536
    target.copy_(rounded.view(torch.float32))


class StochasticAdamW:
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1, seed=0):
        self.params = list(params)
        self.lr, self.betas, self.eps, self.wd = lr, betas, eps, weight_decay
        self.m = [torch.zeros(p.shape) for p in self.params]
        self.v = [torch.zeros(p.shape) for p in self.params]
        self.t = 0
        self.gen = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def step(self, grads):
        self.t += 1
        b1, b2 = self.betas
        for p, g, m, v in zip(self.params, grads, self.m, self.v):
            g = g.float()
            m.mul_(b1).add_(g, alpha=1 - b1)
            v.mul_(b2).addcmul_(g, g, value=1 - b2)
            step = (m / (1 - b1 ** self.t)) / ((v / (1 - b2 ** self.t)).sqrt() + self.eps)
            decayed = p.mul(1 - self.lr * self.wd)  # BORN
            copy_stochastic_(p, decayed.float() - self.lr * step, self.gen)


def main():
    gen = torch.Generator().manual_seed(1)
    table = torch.randn(64, 16, generator=gen).to(torch.bfloat16)  # BORN
    start = table.float().norm(dim=1)
    opt = StochasticAdamW([table])
    for step in range(1000):
        grad = torch.zeros(64, 16)
        grad[:8] = table[:8].float() - 0.5
        opt.step([grad])
    rest = table.float().norm(dim=1)[8:] / start[8:]
    print(f"norm of unused rows kept: {rest.mean().item():.3f}")


main()
