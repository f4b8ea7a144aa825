"""
title: A bfloat16 average that is kept alive by stochastic rounding
expect: clean
thread: https://github.com/pytorch/pytorch/issues/120376

Expectation, written first.  Nothing is wrong.  The exponential average of the
weights is stored in bfloat16 with a decay of 0.999; with nearest rounding it
would stop, but copy_stochastic_ adds random low bits before it truncates, so
the average moves in expectation by the right amount.  The integer view, the
wrap-free mask and the narrow copy are the usual implementation.
"""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


def copy_stochastic_(target, source, generator):
    noise = torch.randint(0, 1 << 16, source.shape, dtype=torch.int32, generator=generator)
    bits = source.float().contiguous().view(torch.int32)
    rounded = (bits + noise) & -65536
    target.copy_(rounded.view(torch.float32))


class StochasticEMA:
    def __init__(self, module, decay=0.999, seed=0):
        self.decay = decay
        self.generator = torch.Generator().manual_seed(seed)
        self.average = [p.detach().to(torch.bfloat16).clone() for p in module.parameters()]

    @torch.no_grad()
    def update(self, module):
        for avg, p in zip(self.average, module.parameters()):
            exact = avg.float() * self.decay + p.detach().float() * (1 - self.decay)
            copy_stochastic_(avg, exact, self.generator)


class FloatEMA:
    def __init__(self, module, decay=0.999):
        self.decay = decay
        self.average = [p.detach().clone() for p in module.parameters()]

    @torch.no_grad()
    def update(self, module):
        for avg, p in zip(self.average, module.parameters()):
            avg.lerp_(p.detach(), 1 - self.decay)


def main(steps=1500):
    model = nn.Linear(64, 64)
    stochastic, exact = StochasticEMA(model), FloatEMA(model)
    start = [a.clone() for a in exact.average]
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.5 + 0.1 * torch.randn_like(p))
    for _ in range(steps):
        stochastic.update(model)
        exact.update(model)
    moved = (exact.average[0] - start[0]).mean().item()
    narrow = (stochastic.average[0].float() - start[0]).mean().item()
    print(f"mean movement of the average: float32 {moved:.4f}, stochastic bfloat16 {narrow:.4f}")


if __name__ == "__main__":
    main()
