"""
title: the brightest and darkest activations change places after quantisation: the cast to uint8 wraps
expect: silent:overflow|wraparound|integer-overflow|downcast
thread: https://github.com/tenstorrent/tt-metal/issues/57500
measured: signal to quantisation noise 9.99 dB, largest error 1.592 of a peak 2.963; strongest unit unchanged for 81.1% of the rows
widened: signal to quantisation noise 23.32 dB, largest error 1.548 of a peak 2.963; strongest unit unchanged for 97.1% of the rows
innocent: signal to quantisation noise 9.99 dB, largest error 1.592 of a peak 2.963; strongest unit unchanged for 81.1% of the rows
suspect: 28 uint8 zero point: fits (rounded and clamped to 0..255 before)

Expectation, written first: quantize narrows round(x / scale) + zero_point with a bare cast to uint8. The scale is calibrated on a
    quantile, so outliers fall out of 0..255 and wrap to the other end. The zero point is uint8 as well, but it is clamped and lies
    inside.
"""
import torch
from torch import nn


class MinMaxObserver:
    def __init__(self, quantile=0.995):
        self.q, self.lo, self.hi = quantile, 0.0, 0.0

    def observe(self, x):
        self.lo = min(self.lo, torch.quantile(x, 1 - self.q).item())
        self.hi = max(self.hi, torch.quantile(x, self.q).item())

    def qparams(self):
        scale = torch.tensor((self.hi - self.lo) / 255)
        zero_point = torch.round(torch.tensor(-self.lo) / scale).clamp(0, 255).to(torch.uint8)
        return scale, zero_point


def quantize(x, scale, zero_point):
    q = torch.round(x / scale) + zero_point.to(torch.float32)
    return q.to(torch.int32).to(torch.uint8)  # BORN


def dequantize(q, scale, zero_point):
    return (q.to(torch.float32) - zero_point.to(torch.float32)) * scale


class QuantizedBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.lin, self.observer = nn.Linear(dim, dim), MinMaxObserver()

    def calibrate(self, x):
        self.observer.observe(torch.nn.functional.gelu(self.lin(x)).flatten())

    def forward(self, x):
        y = torch.nn.functional.gelu(self.lin(x))
        scale, zp = self.observer.qparams()
        return y, dequantize(quantize(y, scale, zp), scale, zp)


torch.manual_seed(0)
block, x = QuantizedBlock(48), torch.randn(512, 48)
with torch.no_grad():
    block.calibrate(x)
    y, yq = block(x)
noise = (yq - y).pow(2).mean()
print(f"signal to quantisation noise {10 * torch.log10(y.pow(2).mean() / noise):.2f} dB, largest error {(yq - y).abs().max():.3f} of a peak {y.max():.3f}")
agree = (y.argmax(1) == yq.argmax(1)).float().mean()
print(f"strongest unit unchanged for {100 * agree:.1f}% of the rows")
