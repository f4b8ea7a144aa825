"""
title: bfloat16 weights are updated in float32 and written back with stochastic rounding
expect: clean
thread: https://github.com/pytorch/pytorch/issues/120376
measured: mean gain 1.04, in float32 1.04

Expectation, written first: single updates are far below the step of bfloat16, but the rounding is up or down with the
right odds, so the expectation of the weight follows the float32 one. The bits are handled as int32 and masked on
purpose. Over many weights the mean moves as in float32.
"""
import torch
from torch import nn

LOW = (1 << 16) - 1


def stochastic_bf16(source, gen):
    """round float32 to a neighbour in bfloat16; the odds are the distances"""
    bits = source.contiguous().view(torch.int32)
    dice = torch.randint(0, LOW + 1, bits.shape, generator=gen, dtype=torch.int32)
    return ((bits + dice) & ~LOW).view(torch.float32).to(torch.bfloat16)


class AdamSR(torch.optim.Optimizer):
    def __init__(self, params, lr, betas=(0.9, 0.99), eps=1e-8, gen=None):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))
        self.gen = gen

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(t=0, m=torch.zeros(p.shape), v=torch.zeros(p.shape))
                state["t"] += 1
                g = p.grad.float()
                state["m"].lerp_(g, 1 - b1)
                state["v"].lerp_(g * g, 1 - b2)
                m = state["m"] / (1 - b1 ** state["t"])
                v = state["v"] / (1 - b2 ** state["t"])
                new = p.float() - group["lr"] * m / (v.sqrt() + group["eps"])
                p.copy_(stochastic_bf16(new, self.gen) if p.dtype == torch.bfloat16 else new)


class Gains(nn.Module):
    """a great many scalar gains that should all drift from 1 to 1.05"""

    def __init__(self, n, dtype):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(n, dtype=dtype))

    def forward(self, x):
        return self.gain.float() * x


def drift(dtype, steps=300):
    gen = torch.Generator().manual_seed(11)
    model = Gains(5000, dtype)
    optimizer = AdamSR(model.parameters(), lr=2e-4, gen=gen)
    x = torch.ones(5000)
    for _ in range(steps):
        loss = (model(x) - 1.05 * x).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.gain.detach().double().mean().item()


def main():
    low, full = drift(torch.bfloat16), drift(torch.float32)
    print(f"mean gain {low:.2f}, in float32 {full:.2f}")


main()
