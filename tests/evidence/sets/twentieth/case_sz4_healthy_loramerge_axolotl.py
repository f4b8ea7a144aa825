"""
title: a LoRA merge of a bfloat16 base saves float32, larger than it need be but not wrong
expect: clean
thread: https://github.com/axolotl-ai-cloud/axolotl/issues/1510
measured: saved dtype torch.float32 size ratio 2.0 ; relative difference after the merge below 1e-5: True
suspect: 61 exact (the base weights came out of a bfloat16 file)

Expectation, written first: the base is read as bfloat16, which is what its file holds, and widened to float32 for the merge; the adapter is float32
and the merged weight is saved as float32. The file is twice as large as expected but the merged model answers as base plus adapter.
"""
import torch
from torch import nn


class LoraLinear(nn.Module):
    def __init__(self, base, r=4, alpha=8):
        super().__init__()
        self.base = base
        self.lora_A = nn.Parameter(torch.randn(r, base.in_features) / base.in_features ** 0.5)
        self.lora_B = nn.Parameter(0.1 * torch.randn(base.out_features, r))
        self.scaling = alpha / r

    def forward(self, x):
        return self.base(x) + (x @ self.lora_A.t() @ self.lora_B.t()) * self.scaling

    def merge(self):
        merged = nn.Linear(self.base.in_features, self.base.out_features, bias=False)
        delta = (self.lora_B @ self.lora_A) * self.scaling
        merged.weight = nn.Parameter((self.base.weight + delta).detach())
        return merged


class GemmaMLP(nn.Module):
    def __init__(self, dim=32, hidden=64):
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.gelu(self.gate_proj(x)) * self.up_proj(x))


def published_weights():
    torch.manual_seed(0)
    return {k: v.to(torch.bfloat16).float() for k, v in GemmaMLP().state_dict().items()}


def load_base(weights, torch_dtype):
    model = GemmaMLP().to(torch_dtype)
    model.load_state_dict(weights)
    return model


def save(model):
    return sum(p.numel() * p.element_size() for p in model.parameters())


@torch.no_grad()
def main():
    model = load_base(published_weights(), torch.bfloat16)
    base_bytes = save(model)
    model = model.float()
    torch.manual_seed(1)
    for name in ("gate_proj", "up_proj", "down_proj"):
        setattr(model, name, LoraLinear(getattr(model, name)))
    x = torch.randn(16, 32)
    want = model(x)
    for name in ("gate_proj", "up_proj", "down_proj"):
        setattr(model, name, getattr(model, name).merge())
    got = model(x)
    print("saved dtype", model.up_proj.weight.dtype, f"size ratio {save(model) / base_bytes:.1f}")
    print(f"relative difference after the merge below 1e-5: {bool((got - want).norm() / want.norm() < 1e-5)}")


main()
