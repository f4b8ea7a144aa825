"""
title: an int8 matmul that falls back to float32 loses the low bits of large accumulators, and the zero-point correction brings the loss to light
expect: silent:precision-loss|cancellation|downcast
thread: https://github.com/Comfy-Org/comfy-kitchen/pull/133
measured: wrong outputs 378 of 384 ; relative error 0.2409
widened: wrong outputs 0 of 384 ; relative error 0.0000
innocent: wrong outputs 378 of 384 ; relative error 0.2409
suspect: 56 exact (the scales are powers of two)

Expectation, written first: the fallback multiplies in float32 and casts to int32; with 16384 products near 127*126 the sums pass 2^24 many times
over and are rounded to multiples of 16. After the zero-point term, itself as large, is subtracted, the small remainder is off by whole units. The
scales are float16, but they are powers of two and lose nothing.
"""
import torch


def _int8_matmul_accumulate(a, b):
    def fast_int8_mm(lhs, rhs):
        return (lhs.to(torch.float32) @ rhs.to(torch.float32)).to(torch.int32)  # BORN

    return fast_int8_mm(a, b)


class AsymmetricInt8Linear:
    def __init__(self, weight_q, weight_scale, input_scale, input_zero_point):
        self.weight_q = weight_q
        self.scale = weight_scale * input_scale
        self.zero_point = input_zero_point
        self.weight_sum = weight_q.sum(1, dtype=torch.int64)

    def __call__(self, x_q):
        acc = _int8_matmul_accumulate(x_q, self.weight_q.t())
        centred = acc.to(torch.int64) - self.zero_point * self.weight_sum
        return centred.to(torch.float64) * self.scale.to(torch.float64)


def reference(layer, x_q):
    acc = (x_q.to(torch.int64)[:, None, :] * layer.weight_q.to(torch.int64)[None]).sum(-1)
    centred = acc - layer.zero_point * layer.weight_sum
    return centred.to(torch.float64) * layer.scale.to(torch.float64)


def quantize_activations(n_rows, k, zero_point, g):
    x = torch.full((n_rows, k), zero_point, dtype=torch.int8)
    where = torch.randint(0, k, (n_rows, 40), generator=g)
    x.scatter_(1, where, zero_point - 1)
    where = torch.randint(0, k, (n_rows, 39), generator=g)
    x.scatter_(1, where, zero_point + 1)
    return x


def main():
    g = torch.Generator().manual_seed(8)
    k, n, zero_point = 16384, 24, 126
    weight_q = torch.randint(120, 128, (n, k), generator=g).to(torch.int8)
    weight_scale = torch.tensor(2.0 ** -7, dtype=torch.float16)
    input_scale = torch.tensor(2.0 ** -4)
    layer = AsymmetricInt8Linear(weight_q, weight_scale, input_scale, zero_point)
    x_q = quantize_activations(16, k, zero_point, g)
    out, want = layer(x_q), reference(layer, x_q)
    wrong = int((out != want).sum())
    rel = (out - want).norm() / want.norm()
    print(f"wrong outputs {wrong} of {out.numel()}")
    print(f"relative error {rel.item():.4f}")


main()
