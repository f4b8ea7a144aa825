"""
title: a block-quantised linear layer unpacks to float16 whatever the model computes in
expect: collision
thread: https://github.com/huggingface/diffusers/pull/14333
fix_at: 21, 36, 39, 40, 46, 48, 69

Expectation, written first: scales are stored in float16, and unpacking multiplies codes with scales, so the weight
comes out in float16; the compute dtype of the configuration has a default of float16, and the user (whose model is
bfloat16) never sets it. Cause: that default, or the line that quantises without giving it, or the cast to it.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class QuantConfig:
    block: int = 16
    compute_dtype: torch.dtype = torch.float16  # BORN


class PackedLinear(nn.Module):
    def __init__(self, linear, config):
        super().__init__()
        self.shape, self.config = linear.weight.shape, config
        w = linear.weight.detach().float().reshape(-1, config.block)
        scale = w.abs().amax(1, keepdim=True) / 127
        self.register_buffer("codes", (w / scale).round().to(torch.int8))
        self.register_buffer("scale", scale.to(torch.float16))
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach(), requires_grad=False)

    def dequantize(self):
        w = self.codes.float() * self.scale.float()
        return w.reshape(self.shape).to(self.config.compute_dtype)  # BORN

    def forward(self, x):
        weight = self.dequantize()
        return F.linear(x, weight, self.bias)  # COLLIDES


def replace_linears(module, config):
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, PackedLinear(child, config))
        else:
            replace_linears(child, config)
    return module


class FeedForward(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.proj_in = nn.Linear(width, inner)
        self.proj_out = nn.Linear(inner, width)

    def forward(self, x):
        return x + self.proj_out(F.gelu(self.proj_in(self.norm(x))))


def main():
    torch.manual_seed(0)
    transformer = nn.Sequential(FeedForward(32, 64), FeedForward(32, 64)).to(torch.bfloat16).eval()
    x = torch.randn(4, 9, 32, dtype=torch.bfloat16)
    with torch.no_grad():
        before = transformer(x).float()
        replace_linears(transformer, QuantConfig(block=32))  # BORN
        after = transformer(x).float()
    print(f"error {(after - before).abs().mean() / before.abs().mean():.3f}")


main()
