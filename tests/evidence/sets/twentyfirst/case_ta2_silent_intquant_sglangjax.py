"""
title: weights quantised on the fly are too small because the cast to the integer type truncates instead of rounding
expect: silent:downcast|precision-loss|round-trip
thread: https://github.com/sgl-project/sglang-jax/pull/1598
measured: output gain 0.80, relative error 0.23
widened: output gain 1.01, relative error 0.09 ; innocent: output gain 0.80, relative error 0.23
suspect: 30 coarse (scales are stored in bf16, 0.4 per cent at most and both ways)

Expectation, written first: the quantiser divides by the scale, clips and casts to the integer type; the cast cuts towards zero, so each
code lies on average half a step too low in magnitude, and with fifteen levels the dequantised layer shrinks by a good tenth. The bf16
scales look coarse, but are unbiased.
"""
import torch
import torch.nn as nn


class QuantConfig:
    def __init__(self, bits=4, group_size=32, scale_dtype=torch.bfloat16):
        self.qmax = 2 ** (bits - 1) - 1
        self.group_size = group_size
        self.scale_dtype = scale_dtype


def quantize_tensor(x, config):
    groups = x.reshape(x.shape[0], -1, config.group_size)
    scale = groups.abs().amax(-1, keepdim=True) / config.qmax
    scale = scale.clamp(min=1e-8)
    codes = (groups / scale).clamp(-config.qmax, config.qmax)  # BORN
    codes = codes.to(torch.int8)  # BORN
    scale = scale.to(config.scale_dtype)
    return codes, scale


def dequantize_tensor(codes, scale, shape):
    return (codes.float() * scale.float()).reshape(shape)


class QuantizedLinear(nn.Module):
    def __init__(self, linear, config):
        super().__init__()
        codes, scale = quantize_tensor(linear.weight.detach(), config)
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self.shape = linear.weight.shape
        self.bias = linear.bias

    def forward(self, x):
        weight = dequantize_tensor(self.codes, self.scale, self.shape)
        return nn.functional.linear(x, weight, self.bias)


def quantize_model(model, config):
    layers = [QuantizedLinear(m, config) if isinstance(m, nn.Linear) else m for m in model]
    return nn.Sequential(*layers)


@torch.no_grad()
def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(128, 256, bias=False), nn.ReLU(), nn.Linear(256, 64, bias=False))
    x = torch.randn(64, 128)
    reference = model(x)
    output = quantize_model(model, QuantConfig(bits=4))(x)
    gain = (output * reference).sum() / (reference * reference).sum()
    error = (output - reference).norm() / reference.norm()
    print(f"output gain {gain:.2f}, relative error {error:.2f}")


if __name__ == "__main__":
    main()
