"""
title: The merged bf16 checkpoint answers like the base model, the mounted adapter does not
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/OpenBMB/MiniCPM-V/issues/502
measured: base 0.07  base + lora 0.70  merged 0.34
widened: base 0.07  base + lora 0.70  merged 0.70
innocent: base 0.07  base + lora 0.70  merged 0.32
suspect: 60 relative

Expectation, written first: The LoRA delta is added to bf16 base weights and the sum is kept in bf16; the delta's entries are below half a step of most
weights, so the merged weight is the base weight again and the fine-tuning is gone. The adapter's own matrices being bf16 looks equally bad,
but they are rounded relative to their own size.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class LoraLinear(nn.Module):
    def __init__(self, in_features, out_features, r=4, scaling=2.0):
        super().__init__()
        self.base = nn.Linear(in_features, out_features, bias=False)
        self.lora = nn.ModuleDict({
            "A": nn.Linear(in_features, r, bias=False),
            "B": nn.Linear(r, out_features, bias=False),
        })
        nn.init.zeros_(self.lora["B"].weight)
        self.scaling = scaling
        self.merged = False

    def forward(self, x):
        out = F.linear(x.to(self.base.weight.dtype), self.base.weight).float()
        if self.merged:
            return out
        low = self.lora["A"](x.to(self.lora["A"].weight.dtype))
        return out + self.scaling * self.lora["B"](low).float()


def load_base(dtype):
    torch.manual_seed(0)
    layer = LoraLinear(256, 12)
    nn.init.normal_(layer.base.weight, std=0.3)
    with torch.no_grad():
        layer.base.weight.copy_(layer.base.weight.mean(dim=0, keepdim=True) * 3.0)
    layer.base.to(dtype).requires_grad_(False)
    return layer


def train_adapter(layer, features, labels, steps=60):
    optimizer = torch.optim.AdamW(layer.lora.parameters(), lr=5e-5, weight_decay=0.0)
    for _ in range(steps):
        loss = F.cross_entropy(layer(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return layer


def save_adapter(adapter):
    return adapter.to(torch.bfloat16)


def merge_and_unload(module):
    delta = module.scaling * (module.lora["B"].weight.float() @ module.lora["A"].weight.float())
    module.base.weight.data = (module.base.weight.data + delta.to(module.base.weight.dtype))  # BORN
    module.merged = True
    return module


@torch.no_grad()
def accuracy(layer, features, labels):
    return (layer(features).argmax(-1) == labels).float().mean().item()


def main():
    layer = load_base(torch.bfloat16)
    g = torch.Generator().manual_seed(4)
    prototypes = torch.randn(12, 256, generator=g)
    labels = torch.randint(0, 12, (480,), generator=g)
    features = 0.8 * prototypes[labels] + 0.1 * torch.randn(480, 256, generator=g)
    print(f"base {accuracy(layer, features, labels):.2f}", end="  ")
    train_adapter(layer, features, labels)
    layer.lora = save_adapter(layer.lora)
    print(f"base + lora {accuracy(layer, features, labels):.2f}", end="  ")
    print(f"merged {accuracy(merge_and_unload(layer), features, labels):.2f}")


if __name__ == "__main__":
    main()
