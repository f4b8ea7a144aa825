"""
title: a small LoRA merged into bfloat16 weights
expect: silent:lost-update|precision-loss|downcast|round-trip
modes: diagnose

After NVIDIA-NeMo/RL#3696 and trl#6688 (merge in bf16; drift): W += scale * B @ A in bfloat16.
Damage: 63 to 72 % of the base's entries do not change, the merged delta is off by 55 to 65 % in norm (float32 merge: 1e-5).
Right change: merge in float32 (and cast once at the end, knowingly), or keep the adapter apart.
"""
import copy

import torch
import torch.nn as nn


class LoraLinear(nn.Module):
    def __init__(self, base, r=4, alpha=8):
        super().__init__()
        self.base, self.scale = base, alpha / r
        gen = torch.Generator().manual_seed(base.in_features)
        self.a = nn.Parameter(torch.randn(r, base.in_features, generator=gen) * 0.05)
        self.b = nn.Parameter(torch.randn(base.out_features, r, generator=gen) * 0.001)

    def delta(self):
        return self.scale * self.b @ self.a

    def forward(self, x):
        return self.base(x.to(self.base.weight.dtype)).float() + x @ self.delta().t()

    @torch.no_grad()
    def merge(self):
        self.base.weight += self.delta().to(self.base.weight.dtype)  # BORN
        return self.base


def wrap(model):
    for name, child in list(model.named_children()):
        if isinstance(child, nn.Linear):
            setattr(model, name, LoraLinear(child))
    return model


def merge_all(model):
    for name, child in list(model.named_children()):
        if isinstance(child, LoraLinear):
            setattr(model, name, child.merge())
    return model


torch.manual_seed(0)
base = nn.Sequential(nn.Linear(32, 48), nn.Linear(48, 32)).to(torch.bfloat16)  # BORN
before = copy.deepcopy(base)
tuned = wrap(base)
deltas = [m.delta().detach() for m in tuned]
merged = merge_all(tuned)
for i, (m, b, d) in enumerate(zip(merged, before, deltas)):
    got = (m.weight.double() - b.weight.double())
    same = (got == 0).double().mean().item()
    err = ((got - d.double()).norm() / d.double().norm()).item()
    print("layer", i, "unchanged", round(same, 3), "error of the merged delta", f"{err:.1e}")
