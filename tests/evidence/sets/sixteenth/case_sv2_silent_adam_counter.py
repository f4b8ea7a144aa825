"""
title: an optimizer makes its step counter in the default dtype, which the run has set to bfloat16
expect: silent:lost-update|precision-loss
thread: https://github.com/pytorch/ao/pull/4915
measured: loss after 2500 steps 0.213
widened: loss after 2500 steps 0.000

Expectation, written first: 256 + 1 is 256 in bfloat16, the bias correction of the second moment stays at 0.226 and
each later step is less than half of what it should be. The schedule's shape is kept in bfloat16 as well, but its
entries are halves and quarters.
"""
import torch
from torch import nn


class Adam:
    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-8):
        self.params, self.lr, self.betas, self.eps = list(params), lr, betas, eps
        self.state = {}

    def _init(self, p):
        return {
            "step": torch.tensor(0.0),  # BORN
            "m": torch.zeros_like(p, dtype=torch.float32),
            "v": torch.zeros_like(p, dtype=torch.float32),
        }

    @torch.no_grad()
    def step(self, factor):
        b1, b2 = self.betas
        for p in self.params:
            s = self.state.setdefault(p, None) or self._init(p)
            self.state[p] = s
            s["step"] += 1
            t = float(s["step"])
            s["m"].lerp_(p.grad, 1 - b1)
            s["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
            m = s["m"] / (1 - b1**t)
            v = s["v"] / (1 - b2**t)
            p.sub_(factor * self.lr * m / (v.sqrt() + self.eps))
            p.grad = None


class Schedule:
    def __init__(self, total):
        self.total = total
        self.shape = torch.tensor([1.0, 1.0, 0.5, 0.25], dtype=torch.bfloat16)

    def __call__(self, k):
        return float(self.shape[4 * k // self.total])


class Ridge(nn.Module):
    """pulls every weight steadily towards a far target"""

    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(n, dtype=torch.float32))
        self.register_buffer("target", torch.linspace(1.2, 1.6, n, dtype=torch.float32))

    def forward(self):
        return (self.w - self.target).abs().mean()


def main():
    torch.set_default_dtype(torch.bfloat16)  # BORN
    model, steps = Ridge(64), 2500
    opt, schedule = Adam(model.parameters(), lr=1e-3), Schedule(steps)
    for k in range(steps):
        loss = model()
        loss.backward()
        opt.step(schedule(k))
    print(f"loss after {steps} steps {model().item():.3f}")


main()
