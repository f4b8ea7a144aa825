"""
title: an int8 linear's own backward multiplies a bfloat16 gradient with the float32 weight that it saved
expect: collision
fix_at: 27, 28, 32

After bitsandbytes-foundation/bitsandbytes#415 and mymusise/ChatGLM-Tuning#179 (expected scalar type Half but found Float out of a
custom Function's backward). The forward casts the dequantised weight to the input's dtype, what is saved for backward is the
float32 one. Right change: dequantise into the compute dtype (or save the cast weight).
"""
import torch
from torch import nn


def quantise(weight):
    scale = weight.float().abs().amax(1, keepdim=True) / 127
    return (weight.float() / scale).round().to(torch.int8), scale


def dequantise(q, scale):
    return q.to(torch.float32) * scale  # BORN


class Int8Matmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, q, scale):
        weight = dequantise(q, scale)
        ctx.save_for_backward(weight)
        return x @ weight.to(x.dtype).T

    @staticmethod
    def backward(ctx, grad):
        weight, = ctx.saved_tensors
        return grad @ weight, None, None  # COLLIDES


class Int8Linear(nn.Module):
    def __init__(self, linear):
        super().__init__()
        q, scale = quantise(linear.weight.data)
        self.register_buffer("q", q)
        self.register_buffer("scale", scale)

    def forward(self, x):
        return Int8Matmul.apply(x, self.q, self.scale)


class LoRA(nn.Module):
    def __init__(self, base, width, rank=2):
        super().__init__()
        self.base = base
        self.down = nn.Linear(width, rank, bias=False, dtype=torch.bfloat16)
        self.up = nn.Linear(rank, width, bias=False, dtype=torch.bfloat16)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


torch.manual_seed(0)
layers = nn.Sequential(*[LoRA(Int8Linear(nn.Linear(8, 8, bias=False)), 8) for _ in range(3)])
x = torch.randn(4, 8, dtype=torch.bfloat16)
loss = layers(x).float().square().mean()
print("forward", loss.isfinite().item())
loss.backward()
print("backward", layers[0].up.weight.grad.dtype)
