"""
title: rarely used experts come out as NaN after quantisation
expect: silent:underflow
thread: https://github.com/intel/auto-round/issues/207
measured: experts with NaN 2 of 8, worst relative error inf
widened: experts with NaN 0 of 8, worst relative error 0.06; innocent: experts with NaN 2 of 8, worst relative error inf
suspect: 30 exact (zero points are the integers 0 to 15)

Expectation, written first: the scale (max-min)/15 of an expert that was hardly trained (weights near 1e-7) is below the
smallest half and becomes zero; w/0 is infinite and 0/0 is NaN. Remedy: keep the scale in float32. The integer zero
point in half is exact.
"""
import torch
from torch import nn


class QuantArgs:
    bits = 4
    group_size = 32
    scale_dtype = torch.float16  # BORN


def quant_weight_asym(weight, args):
    maxq = 2 ** args.bits - 1
    groups = weight.reshape(-1, args.group_size)
    wmin = groups.min(dim=1, keepdim=True).values.clamp(max=0)
    wmax = groups.max(dim=1, keepdim=True).values.clamp(min=0)
    scale = ((wmax - wmin) / maxq).to(args.scale_dtype)  # BORN
    true_scale = (wmax - wmin) / maxq
    zp = torch.round(-wmin / true_scale).clamp(0, maxq).to(torch.float16)
    q = torch.round(groups / scale + zp).clamp(0, maxq)  # BORN
    return (scale * (q - zp)).reshape(weight.shape).float()


class Experts(nn.Module):
    def __init__(self, num_experts, hidden):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(num_experts))
        with torch.no_grad():
            for i, layer in enumerate(self.layers):
                layer.weight.mul_(1.0 if i < num_experts - 2 else 1e-6)
                layer.weight[0, ::7] = 0.0


@torch.no_grad()
def wrap_and_quantize(model, args):
    worst, bad = 0.0, 0
    for layer in model.layers:
        dq = quant_weight_asym(layer.weight, args)  # BORN
        bad += int(torch.isnan(dq).any())
        err = ((dq - layer.weight).norm() / layer.weight.norm()).item()
        worst = max(worst, err) if err == err else float("inf")
        layer.weight.copy_(dq)
    return bad, worst


def main():
    torch.manual_seed(207)
    model = Experts(8, 64)
    bad, worst = wrap_and_quantize(model, QuantArgs())
    print(f"experts with NaN {bad} of 8, worst relative error {worst:.2f}")


main()
