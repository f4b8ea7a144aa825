"""
title: lowered fp16 batch norm silently zeroes channels with a large running variance
expect: silent:overflow|downcast
thread: https://github.com/apple/coreai-torch/pull/54
measured: constant channels 3 of 8, mean spread 0.484
widened: constant channels 0 of 8, mean spread 0.769; innocent: constant channels 3 of 8, mean spread 0.484
suspect: 30 tolerant (a gain near one loses less than 0.05 percent)

Expectation, written first: the composite body casts the float32 statistics to the dtype of the activation; a running
variance above 65504 becomes inf in half, rsqrt gives zero and the whole channel is constant. Remedy: keep the statistics
in float32 and narrow only the result. The cast of the gain is harmless.
"""
import torch
from torch import nn


class BatchNormBody:
    def __init__(self, module):
        self.weight = module.weight.detach()
        self.bias = module.bias.detach()
        self.running_mean = module.running_mean
        self.running_var = module.running_var
        self.eps = module.eps

    def __call__(self, x):
        shape = (1, -1) + (1,) * (x.dim() - 2)
        compute_type = x.dtype  # BORN
        mean = self.running_mean.to(compute_type).reshape(shape)
        var = self.running_var.to(compute_type).reshape(shape)  # BORN
        weight = self.weight.to(torch.float16).reshape(shape)
        bias = self.bias.reshape(shape)
        y = (x - mean) * torch.rsqrt(var + self.eps)
        return (y * weight + bias).to(x.dtype)


class Converter:
    lowerings = {}

    @classmethod
    def register(cls, kind):
        def wrap(fn):
            cls.lowerings[kind] = fn
            return fn
        return wrap

    def convert(self, model):
        return [self.lowerings[type(m)](m) for m in model]


@Converter.register(nn.BatchNorm2d)
def lower_batch_norm(module):
    return BatchNormBody(module)


@Converter.register(nn.ReLU)
def lower_relu(module):
    return torch.relu


def run_program(ops, x):
    for op in ops:
        x = op(x)
    return x


def build_model(channels, generator):
    bn = nn.BatchNorm2d(channels)
    scale = torch.tensor([1.0, 4.0, 60.0, 400.0, 0.5, 900.0, 350.0, 12.0])
    with torch.no_grad():
        bn.running_mean.copy_(torch.randn(channels, generator=generator) * scale)
        bn.running_var.copy_(scale ** 2)
        bn.weight.copy_(1 + 0.2 * torch.rand(channels, generator=generator))
        bn.bias.copy_(torch.full((channels,), 0.3))
    return nn.Sequential(bn, nn.ReLU()).eval(), scale


@torch.no_grad()
def main():
    generator = torch.Generator().manual_seed(54)
    model, scale = build_model(8, generator)
    x = torch.randn(4, 8, 16, 16, generator=generator) * scale.reshape(1, -1, 1, 1)
    x = x + model[0].running_mean.reshape(1, -1, 1, 1)
    y = run_program(Converter().convert(model), x.half())
    spread = y.float().std(dim=(0, 2, 3))
    print(f"constant channels {(spread < 1e-3).sum().item()} of 8, mean spread {spread.mean().item():.3f}")


main()
