"""
title: the zero point is subtracted from int8 codes before they are widened
expect: silent:overflow|wraparound|integer-overflow
thread: https://github.com/pytorch/executorch/pull/20655
measured: classes kept 83.8%, relative error 0.584
widened: classes kept 99.4%, relative error 0.008
fix_at: 24

Expectation, written first: codes minus a zero point near -110 leave the range of int8 and wrap,
so the large activations of a GELU layer come back as negative ones.
"""
import torch
from torch import nn


class QuantTensor:
    def __init__(self, values, lo, hi):
        self.scale = (hi - lo) / 255
        self.zero_point = torch.tensor(round(-128 - lo / self.scale), dtype=torch.int8)
        q = (values / self.scale + self.zero_point.item()).round().clamp(-128, 127)
        self.codes = q.to(torch.int8)  # BORN

    def dequantize(self):
        shifted = self.codes - self.zero_point
        return shifted.float() * self.scale


class QuantMLP:
    def __init__(self, net):
        self.first, self.last = net[0], net[2]

    def calibrate(self, x):
        h = torch.nn.functional.gelu(self.first(x))
        self.lo, self.hi = h.min().item(), h.max().item()

    def __call__(self, x):
        h = torch.nn.functional.gelu(self.first(x))
        return self.last(QuantTensor(h, self.lo, self.hi).dequantize())


@torch.no_grad()
def main():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 8))
    x = torch.randn(512, 16)
    exact = net[2](net[1](net[0](x)))
    quant = QuantMLP(net)
    quant.calibrate(x)
    out = quant(x)
    same = (out.argmax(-1) == exact.argmax(-1)).float().mean().item()
    err = ((out - exact).norm() / exact.norm()).item()
    print(f"classes kept {100 * same:.1f}%, relative error {err:.3f}")


main()
