"""
title: a reference kernel takes the zero point from int8 values before it raises them
expect: silent:overflow|integer-overflow|wraparound
thread: https://github.com/pytorch/executorch/pull/20655
measured: error 51.1%, largest 10.44
widened: error 1.4%, largest 1.65

Expectation, written first: with a zero point of -100 a value of 100 should become 200, but the difference is made in
int8 and wraps to -56; large activations change their sign. The scale is a bfloat16 number, but a power of two.
"""
import torch
from torch import nn


class Int8:
    def __init__(self, scale, zero_point):
        self.scale = torch.tensor(scale, dtype=torch.bfloat16).float()
        self.zero_point = torch.tensor(zero_point, dtype=torch.int8)

    def quantise(self, x):
        q = (x / self.scale).round() + self.zero_point.float()
        return q.clamp(-128, 127).to(torch.int8)

    def dequantise(self, q):
        return (q - self.zero_point) * self.scale  # BORN


class QuantizedAdd:
    def __init__(self, left, right, out):
        self.left, self.right, self.out = left, right, out

    def __call__(self, a, b):
        total = self.left.dequantise(a) + self.right.dequantise(b)
        return self.out.quantise(total.relu())


class Residual(nn.Module):
    """relu(x) + relu(conv(x)) as the exported graph has it"""

    def __init__(self, channels=8):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 3, padding=1)
        self.q = Int8(1 / 32, -100)
        self.wide = Int8(1 / 16, -100)
        self.add = QuantizedAdd(self.q, self.q, self.wide)

    def forward(self, x):
        return x.relu() + self.conv(x).relu()

    def quantised(self, x):
        out = self.add(self.q.quantise(x.relu()), self.q.quantise(self.conv(x).relu()))
        return (out.float() - self.wide.zero_point.float()) * self.wide.scale


@torch.no_grad()
def main():
    torch.manual_seed(0)
    model = Residual()
    error = norm = worst = 0.0
    for _ in range(6):
        x = 2.2 * torch.randn(16, 8, 40)
        exact, got = model(x), model.quantised(x)
        error += (exact - got).square().sum().item()
        norm += exact.square().sum().item()
        worst = max(worst, (exact - got).abs().max().item())
    print(f"error {100 * (error / norm) ** 0.5:.1f}%, largest {worst:.2f}")


main()
