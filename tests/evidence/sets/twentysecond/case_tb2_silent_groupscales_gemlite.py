"""
title: FP4 weights dequantise to zeros because the group scales underflow in float8
expect: silent:underflow|downcast|precision-loss
thread: https://github.com/dropbox/gemlite/issues/39
measured: up: output rms 0.7689 relative error 0.10 zero weights 6% | down: output rms 0.0043 relative error 0.96 zero weights 96%
widened: up: output rms 0.7689 relative error 0.09 zero weights 6% | down: output rms 0.0159 relative error 0.09 zero weights 7%; innocent: up: output rms 0.7689 relative error 0.10 zero weights 6% | down: output rms 0.0043 relative error 0.96 zero weights 96%
suspect: line 30 - innocent: the codes run from 0 to 15, uint8 holds them exactly

Expectation, written first: every group of 16 weights gets a scale absmax/6 and the scale is stored as float8_e4m3fn,
whose smallest number is 2**-9. A layer initialised with std 0.002 has scales below 2**-10; they round to zero and
the layer puts out zeros, while the layer with ordinary weights is fine. The codes' uint8 is innocent.
"""
import torch
from torch import nn

FP4_VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])


class WeightQuantizerNVFP4:
    def __init__(self, group_size=16, scales_dtype=torch.float8_e4m3fn):  # BORN
        self.group_size = group_size
        self.scales_dtype = scales_dtype

    def quantize(self, weight):
        groups = weight.reshape(-1, self.group_size)
        scales = groups.abs().amax(dim=1, keepdim=True) / 6.0
        scales = scales.to(self.scales_dtype)  # BORN
        ratio = groups / scales.float().clamp(min=1e-12)
        codes = (ratio.unsqueeze(-1) - FP4_VALUES).abs().argmin(dim=-1)
        codes = codes.to(torch.uint8)
        return codes, scales

    def dequantize(self, codes, scales, shape):
        return (FP4_VALUES[codes.long()] * scales.float()).reshape(shape)


class GemLiteLinear(nn.Module):
    def __init__(self, linear, quantizer):
        super().__init__()
        self.shape = linear.weight.shape
        self.quantizer = quantizer
        codes, scales = quantizer.quantize(linear.weight.detach())
        self.register_buffer("W_q", codes)
        self.register_buffer("scales", scales)

    def forward(self, x):
        return x @ self.quantizer.dequantize(self.W_q, self.scales, self.shape).T


def make_block(dim=64):
    up, down = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
    nn.init.normal_(up.weight, std=0.1)
    nn.init.normal_(down.weight, std=0.002)
    return nn.ModuleDict({"up": up, "down": down})


@torch.no_grad()
def main():
    torch.manual_seed(7)
    block = make_block()
    x = torch.randn(32, 64)
    for name, linear in block.items():
        layer = GemLiteLinear(linear, WeightQuantizerNVFP4())
        ref, out = linear(x), layer(x)
        err = (out - ref).norm() / ref.norm()
        zeros = (layer(torch.eye(64)) == 0).float().mean()
        print(f"{name}: output rms {out.pow(2).mean().sqrt():.4f} relative error {err:.2f} zero weights {zeros:.0%}")


if __name__ == "__main__":
    main()
