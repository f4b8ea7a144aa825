"""
title: the ramp of an adapter counts its steps in bfloat16; the adapter's output is bfloat16 too
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/kyegomez/SingLoRA/issues/6
measured: ramp at the end 0.128, error of the merged weight 96.1%
widened: ramp at the end 1.000, error of the merged weight 25.3%

Expectation, written first: the counter stands still at 256, so a ramp over 2000 steps ends
at an eighth and the adapter never has its full weight. Its output is rounded to bfloat16 as
well, which costs a fraction of a percent; float32 there leaves the loss where it was.
"""
import torch
from torch import nn


class SingleFactor(nn.Module):
    def __init__(self, base, rank, ramp_steps, alpha=1.0):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(base.in_features, rank) * 0.1)
        self.register_buffer("step", torch.zeros((), dtype=torch.bfloat16))  # BORN
        self.ramp_steps, self.scale = ramp_steps, alpha / rank

    def ramp(self):
        return (self.step.float() / self.ramp_steps).clamp(max=1)

    def forward(self, x):
        if self.training:
            self.step += 1
        delta = (x @ self.a @ self.a.t()).to(torch.bfloat16)
        return self.base(x) + self.ramp() * self.scale * delta.float()


def target(x, mix):
    return x @ (mix @ mix.t())


def main(steps=2500):
    torch.manual_seed(0)
    base = nn.Linear(16, 16, bias=False)
    nn.init.zeros_(base.weight)
    layer = SingleFactor(base, rank=4, ramp_steps=2000)
    gen = torch.Generator().manual_seed(1)
    mix = torch.randn(16, 4, generator=gen) * 0.4
    for _ in range(steps):
        x = torch.randn(64, 16, generator=gen)
        loss = (layer(x) - target(x, mix)).pow(2).mean()
        (grad,) = torch.autograd.grad(loss, [layer.a])
        with torch.no_grad():
            layer.a -= 0.02 * grad / grad.norm().clamp(min=1)
    merged = (layer.scale * layer.a @ layer.a.t()).detach()
    miss = ((merged - mix @ mix.t()).norm() / (mix @ mix.t()).norm()).item()
    print(f"ramp at the end {layer.ramp().item():.3f}, error of the merged weight {100 * miss:.1f}%")


main()
