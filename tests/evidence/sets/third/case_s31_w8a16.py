"""
title: weight-only int8 layers whose scales were measured in float32
expect: collision
fix_at: 18, 24, 26, 30, 68

After hiyouga/LlamaFactory#2022 (BFloat16 != float on a quantised base), in gpt-fast's WeightOnlyInt8Linear form.
Right change: keep the scale in (or cast the dequantised weight to) the activations' dtype.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def quantize(weight):
    w = weight.detach().float()
    scale = w.abs().amax(dim=1, keepdim=True) / 127.0  # BORN
    q = torch.clamp((w / scale).round(), -127, 127).to(torch.int8)
    return q, scale


class W8Linear(nn.Module):
    def __init__(self, linear):
        super().__init__()
        q, scale = quantize(linear.weight)
        self.register_buffer("q", q)
        self.register_buffer("scale", scale)
        self.bias = linear.bias

    def forward(self, x):
        weight = self.q * self.scale
        return F.linear(x, weight, self.bias)  # COLLIDES


def swap_linears(module, skip=("head",)):
    for name, child in module.named_children():
        if name in skip:
            continue
        if isinstance(child, nn.Linear):
            setattr(module, name, W8Linear(child))
        else:
            swap_linears(child, skip)
    return module


class Mlp(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.body = nn.Sequential(Mlp(), Mlp())
        self.head = nn.Linear(16, 32)

    def forward(self, ids):
        return self.head(self.body(self.embed(ids)))


torch.manual_seed(0)
model = swap_linears(Model().to(torch.bfloat16).eval())
with torch.no_grad():
    logits = model(torch.randint(0, 32, (2, 6)))
print("top", logits.argmax(-1)[:, -1].tolist())
