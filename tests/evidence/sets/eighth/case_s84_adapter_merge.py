"""
title: merging a low-rank adapter into its base layer
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/unslothai/unsloth/issues/3091
measured: effect of the adapter 2.33e-04, part of it kept by the merged weight 0.000
widened: effect of the adapter 2.33e-04, part of it kept by the merged weight 1.000

Expectation, written first: the change made by the adapter is smaller than half a bf16
step of the base weights, so the merged weight, stored in bf16, is the base weight again and
the adapter has no effect. BORN is the cast of the merged weight; float32 keeps the effect.
The adapter factors in half lose nothing that matters.
"""
import torch
from torch import nn


class BaseLayer(nn.Module):
    def __init__(self, width, seed):
        super().__init__()
        gen = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randint(65, 128, (width, width), generator=gen) / 64.0)

    def forward(self, x):
        return x.to(self.weight.dtype) @ self.weight.t()


class Adapter:
    def __init__(self, width, rank, scale, seed):
        gen = torch.Generator().manual_seed(seed)
        self.down = torch.randn(rank, width, generator=gen).to(torch.float16)
        self.up = torch.randn(width, rank, generator=gen)
        self.scale = scale

    def delta(self):
        return self.scale * (self.up @ self.down.float())

    def __call__(self, layer, x):
        return layer(x) + x @ self.delta().t()


class Merger:
    @torch.no_grad()
    def merge(self, layer, adapter):
        merged = layer.weight + adapter.delta()
        layer.weight.data = merged.to(torch.bfloat16)  # BORN
        return layer


def effect(out, plain):
    return (out - plain).norm().item() / plain.norm().item()


@torch.no_grad()
def main():
    torch.manual_seed(0)
    x = torch.randn(16, 64)
    layer, adapter = BaseLayer(64, seed=1), Adapter(64, rank=4, scale=2e-4, seed=2)
    plain = layer(x)
    wanted = effect(adapter(layer, x), plain)
    merged = Merger().merge(layer, adapter)
    kept = (merged.weight.float() - BaseLayer(64, seed=1).weight).norm() / adapter.delta().norm()
    print("effect of the adapter %.2e, part of it kept by the merged weight %.3f" % (wanted, kept.item()))


if __name__ == "__main__":
    main()
