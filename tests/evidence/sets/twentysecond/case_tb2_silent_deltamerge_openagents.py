"""
title: merging a LoRA delta into a bfloat16 base rounds most of the delta away
expect: silent:precision-loss|downcast|lost-update
thread: https://github.com/OpenAgentsInc/openagents/issues/9456
measured: delta mean size 1.7e-03 weights changed 8% | relative error of the merged delta 0.83
widened: delta mean size 1.7e-03 weights changed 100% | relative error of the merged delta 0.00; innocent: delta mean size 1.7e-03 weights changed 8% | relative error of the merged delta 0.83
suspect: line 25 - innocent: alpha / rank is 2, a power of two, exact in bfloat16

Expectation, written first: the backbone is loaded in bfloat16 first, then the float32 delta is cast to that type and
added to the rounded base. Deltas of 1e-3 beside weights near 1 are less than half a step, so only a small part of
them arrives and the merged model is nearly the base model again. The scaling factor is exact.
"""
import torch
from torch import nn


class LoraAdapter:
    def __init__(self, rank, alpha, gen, dim):
        self.rank, self.alpha = rank, alpha
        self.a = torch.randn(rank, dim, generator=gen) * 0.02
        self.b = torch.randn(dim, rank, generator=gen) * 0.02

    @property
    def scaling(self):
        return torch.tensor(self.alpha / self.rank, dtype=torch.bfloat16)

    def delta(self):
        return (self.b @ self.a) * self.scaling.float()


class DecisionModel(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Linear(dim, dim, bias=False)
        self.head = nn.Linear(dim, 2, bias=False)

    def forward(self, x):
        x = x.to(self.proj.weight.dtype)
        return self.head(self.proj(x).float())


def load_backbone(checkpoint, dim, dtype):
    model = DecisionModel(dim)
    model.load_state_dict(checkpoint)
    model.proj.to(dtype)  # BORN
    return model


@torch.no_grad()
def merge_lora(model, adapter):
    weight = model.proj.weight
    delta = adapter.delta()
    weight.add_(delta.to(weight.dtype))  # BORN
    return model


def make_checkpoint(dim, gen):
    weight = 1.0 + 0.3 * torch.rand(dim, dim, generator=gen)
    head = torch.randn(2, dim, generator=gen)
    return {"proj.weight": weight, "head.weight": head - head.mean(1, keepdim=True)}


@torch.no_grad()
def main(dim=64):
    gen = torch.Generator().manual_seed(12)
    checkpoint = make_checkpoint(dim, gen)
    adapter = LoraAdapter(rank=8, alpha=16, gen=gen, dim=dim)
    merged = merge_lora(load_backbone(checkpoint, dim, dtype=torch.bfloat16), adapter)  # BORN
    base = load_backbone(checkpoint, dim, merged.proj.weight.dtype)
    arrived = merged.proj.weight.float() - base.proj.weight.float()
    delta = adapter.delta()
    error = (arrived - delta).norm() / delta.norm()
    print(f"delta mean size {delta.abs().mean():.1e} weights changed {(arrived != 0).float().mean():.0%}")
    print(f"relative error of the merged delta {error:.2f}")


if __name__ == "__main__":
    main()
