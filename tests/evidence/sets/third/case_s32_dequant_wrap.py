"""
title: an affine uint8 layer subtracts its zero point before it leaves uint8
expect: silent:overflow
modes: diagnose

After W8A16 loaders (inducer/pyopencl#380-like uint subtraction): q - zero_point wraps below the zero point.
Damage: half of the weights are 256 steps too large; output error 1600 % (repaired: 0.5 %). Right change: q.to(float) - zp.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def quantize(w):
    lo, hi = w.amin(1, keepdim=True), w.amax(1, keepdim=True)
    scale = (hi - lo) / 255
    zp = (-lo / scale).round().clamp(0, 255).to(torch.uint8)
    q = (w / scale + zp).round().clamp(0, 255).to(torch.uint8)
    return q, scale, zp


class U8Linear(nn.Module):
    def __init__(self, linear):
        super().__init__()
        q, scale, zp = quantize(linear.weight.detach())
        self.register_buffer("q", q)
        self.register_buffer("scale", scale)
        self.register_buffer("zp", zp)
        self.bias = linear.bias

    def weight(self):
        centred = self.q - self.zp  # BORN
        return centred * self.scale

    def forward(self, x):
        return F.linear(x, self.weight(), self.bias)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(16, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


torch.manual_seed(0)
head = Head().eval()
x = torch.randn(32, 16)
with torch.no_grad():
    want = head(x)
    head.fc1, head.fc2 = U8Linear(head.fc1), U8Linear(head.fc2)
    got = head(x)
err = ((got - want).norm() / want.norm()).item()
print("relative error", round(err, 4), "same class", (got.argmax(-1) == want.argmax(-1)).float().mean().item())
