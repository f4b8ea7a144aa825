"""
title: W8A8 layer returns noise: the int8 product is accumulated and returned in int8
expect: silent:overflow|integer-overflow|wraparound
thread: https://github.com/triton-lang/triton/issues/2296
measured: cosine to the float model 0.1888, same class 39.8%, relative error 0.9841
widened: cosine to the float model 0.9999, same class 98.2%, relative error 0.0101
innocent: cosine to the float model 0.1888, same class 39.8%, relative error 0.9841
suspect: 29 half scales: small (0.05% of a scale)

Expectation, written first: matmul of two int8 tensors gives int8 again (the higher dtype of the operands), so dot products wrap modulo
    256 before they are scaled back. The half precision scales look coarse, but they cost 0.05%.
"""
import torch
from torch import nn


def get_higher_dtype(a, b):
    return torch.promote_types(a, b)  # BORN


def matmul(a, b):
    acc = get_higher_dtype(a.dtype, b.dtype)  # BORN
    return torch.matmul(a.to(acc), b.to(acc))  # BORN


def quantize_rows(x):
    scale = (x.abs().amax(dim=1, keepdim=True) / 127).clamp(min=1e-5)
    q = torch.round(x / scale).clamp(-127, 127).to(torch.int8)
    return q, scale.to(torch.float16)
class W8A8Linear(nn.Module):
    def __init__(self, linear):
        super().__init__()
        qweight, wscale = quantize_rows(linear.weight.detach())
        self.register_buffer("qweight", qweight)
        self.register_buffer("wscale", wscale)
        self.bias = linear.bias

    def forward(self, x):
        qx, xscale = quantize_rows(x)
        y = matmul(qx, self.qweight.t())
        return y.float() * xscale.float() * self.wscale.float().t() + self.bias


class Classifier(nn.Module):
    def __init__(self, dim=64, hidden=96, classes=10):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, hidden), nn.Linear(hidden, classes)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))

    def quantized(self):
        other = Classifier()
        other.fc1, other.fc2 = W8A8Linear(self.fc1), W8A8Linear(self.fc2)
        return other


torch.manual_seed(0)
model, x = Classifier(), torch.randn(400, 64)
with torch.no_grad():
    ref, out = model(x), model.quantized()(x)
cosine = nn.functional.cosine_similarity(ref, out, dim=1).mean()
same = (ref.argmax(1) == out.argmax(1)).float().mean()
print(f"cosine to the float model {cosine:.4f}, same class {100 * same:.1f}%, relative error {(out - ref).norm() / ref.norm():.4f}")
