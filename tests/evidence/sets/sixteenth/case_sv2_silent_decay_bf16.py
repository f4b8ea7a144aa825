"""
title: the update of the weights is rounded stochastically, the decay before it is not
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/Nerogar/OneTrainer/issues/996
measured: norm of the unused weights 1.00 of the start
widened: norm of the unused weights 0.21 of the start

Expectation, written first: lr times decay is a thousandth and a bfloat16 weight times 0.999 is the weight again,
so unused weights never shrink. The first moment is bfloat16 too; with beta 0.5 that changes nothing.
"""
import torch
from torch import nn


def copy_stochastic_(target, source):
    bits = source.contiguous().view(torch.int32)
    noise = torch.randint_like(bits, 0, 1 << 16)
    target.copy_(((bits + noise) & -65536).view(torch.float32))


class AdamW:
    def __init__(self, params, lr, decay, betas=(0.5, 0.95)):
        self.params, self.lr, self.decay, self.betas = list(params), lr, decay, betas
        self.m = [torch.zeros_like(p, dtype=torch.bfloat16) for p in self.params]
        self.v = [torch.zeros_like(p, dtype=torch.float32) for p in self.params]
        self.t = 0

    @torch.no_grad()
    def step(self):
        self.t += 1
        b1, b2 = self.betas
        for p, m, v in zip(self.params, self.m, self.v):
            g = p.grad.float()
            m.copy_(b1 * m.float() + (1 - b1) * g)
            v.mul_(b2).addcmul_(g, g, value=1 - b2)
            p.mul_(1 - self.lr * self.decay)  # BORN
            step = m.float() / (1 - b1**self.t) / ((v / (1 - b2**self.t)).sqrt() + 1e-6)
            copy_stochastic_(p, p.float() - self.lr * step)
            p.grad = None


def main():
    torch.manual_seed(0)
    layer = nn.Linear(40, 1, bias=False)
    nn.init.normal_(layer.weight, std=0.6)
    layer = layer.to(torch.bfloat16)  # BORN
    start = layer.weight.detach().float()[0, 20:].norm()
    opt = AdamW(layer.parameters(), lr=1e-2, decay=0.1)
    true = torch.cat([torch.ones(20), torch.zeros(20)])
    for _ in range(1500):
        x = torch.randn(64, 40)
        x[:, 20:] = 0  # these inputs are not fed in this data set
        loss = (layer(x.to(layer.weight.dtype)).float()[:, 0] - x @ true).square().mean()
        loss.backward()
        opt.step()
    unused = layer.weight.detach().float()[0, 20:].norm()
    print(f"norm of the unused weights {unused / start:.2f} of the start")


main()
