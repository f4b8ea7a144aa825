"""
title: quantised add of the reference kernels is off because the zero point is subtracted while the tensor is still int8
expect: silent:wraparound|overflow|integer-overflow
thread: https://github.com/pytorch/executorch/pull/20655
measured: mean activation after the residual add: 1.297
widened: mean activation after the residual add: 1.695 ; innocent: mean activation after the residual add: 1.297
suspect: 33 clamp (the requantised result is cast to int8 after it was clamped to the int8 range)

Expectation, written first: dequantisation subtracts a negative zero point from int8 values in int8; values above 127 + zero_point wrap to
the negative end, so all large activations come out with the wrong sign. The cast to int8 at the end looks alike, but is clamped.
"""
import torch


class QParams:
    def __init__(self, scale, zero_point, quant_min=-128, quant_max=127):
        self.scale = scale
        self.zero_point = zero_point
        self.quant_min = quant_min
        self.quant_max = quant_max


def choose_qparams(x):
    lo, hi = min(x.min().item(), 0.0), max(x.max().item(), 0.0)
    scale = (hi - lo) / 255.0
    zero_point = int(round(-128 - lo / scale))
    return QParams(scale, zero_point)


def quantize_per_tensor(x, q):
    codes = torch.round(x / q.scale) + q.zero_point
    codes = codes.clamp(q.quant_min, q.quant_max)
    return codes.to(torch.int8)


def dequantize_per_tensor(codes, q):
    return q.scale * (codes - q.zero_point)  # BORN


def quantized_add(a, qa, b, qb, q_out):
    if a.dtype != torch.int8 or b.dtype != torch.int8:
        raise ValueError("expected int8 inputs")
    total = dequantize_per_tensor(a, qa) + dequantize_per_tensor(b, qb)
    return quantize_per_tensor(total, q_out)


class ResidualBlock:
    def __init__(self, hidden):
        self.weight = torch.randn(hidden, hidden) / hidden ** 0.5

    def branches(self, x):
        return x, torch.relu(x @ self.weight)


def output_mean(codes, q):
    return ((codes.float() - q.zero_point) * q.scale).mean().item()


def main():
    torch.manual_seed(0)
    block = ResidualBlock(32)
    x = torch.relu(torch.randn(256, 32) + 1.0)
    skip, branch = block.branches(x)
    qa, qb, q_out = choose_qparams(skip), choose_qparams(branch), choose_qparams(skip + branch)
    codes = quantized_add(quantize_per_tensor(skip, qa), qa, quantize_per_tensor(branch, qb), qb, q_out)
    print(f"mean activation after the residual add: {output_mean(codes, q_out):.3f}")


if __name__ == "__main__":
    main()
