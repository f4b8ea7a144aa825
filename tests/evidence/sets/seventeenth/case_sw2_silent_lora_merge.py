"""
title: merge_and_unload distorts the adapter beyond use: its delta is below one BF16 step of the base weight
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/huggingface/peft/issues/1388
measured: adapter effect kept by the merge 27.5%, error relative to the effect 0.8947
widened: adapter effect kept by the merge 100.0%, error relative to the effect 0.0017
innocent: adapter effect kept by the merge 27.5%, error relative to the effect 0.8947
suspect: 29 bf16 delta: relative (0.4% of the delta; the addition loses the rest)

Expectation, written first: The base weight is BF16 and the merge adds the delta in place, so a change of a thousandth of the weight is
    rounded away. The cast of the delta itself to the dtype of the weight stands right before it and looks guilty, but it keeps a relative
    0.4% of a number that is then lost whole.
"""
import torch
from torch import nn
import torch.nn.functional as F


class LoraLinear(nn.Module):
    def __init__(self, base, r=4, alpha=8):
        super().__init__()
        self.base_layer, self.scaling = base, alpha / r
        self.lora_A = nn.Parameter(torch.randn(r, base.in_features) * 0.02)
        self.lora_B = nn.Parameter(torch.randn(base.out_features, r) * 0.0004)
        self.merged = False

    def get_delta_weight(self):
        delta = (self.lora_B @ self.lora_A) * self.scaling
        return delta.to(torch.bfloat16)
    @torch.no_grad()
    def merge(self):
        weight = self.base_layer.weight
        weight.data += self.get_delta_weight().to(weight.dtype)  # BORN
        self.merged = True

    def forward(self, x):
        out = F.linear(x, self.base_layer.weight.float())
        if not self.merged:
            out = out + F.linear(F.linear(x, self.lora_A), self.lora_B) * self.scaling
        return out


class LlamaMLP(nn.Module):
    def __init__(self, dim=96, load_dtype=torch.bfloat16):  # BORN
        super().__init__()
        self.up_proj = LoraLinear(nn.Linear(dim, dim, bias=False).to(load_dtype))  # BORN

    def forward(self, x):
        return self.up_proj(x)


torch.manual_seed(0)
model, x = LlamaMLP(), torch.randn(256, 96)
with torch.no_grad():
    base = F.linear(x, model.up_proj.base_layer.weight.float())
    tuned = model(x)
    model.up_proj.merge()
    merged = model(x)
effect, kept = tuned - base, merged - base
share = (kept * effect).sum() / (effect * effect).sum()
error = (merged - tuned).norm() / effect.norm()
print(f"adapter effect kept by the merge {100 * share:.1f}%, error relative to the effect {error:.4f}")
