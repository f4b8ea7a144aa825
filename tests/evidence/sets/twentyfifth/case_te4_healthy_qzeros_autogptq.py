"""
title: packed zero points are stored minus one and wrap around below zero
expect: clean
thread: https://github.com/AutoGPTQ/AutoGPTQ/pull/640
measured: zeros at 0: 32 wrong zeros 0 largest error 0.50 steps
suspect: 36 exact (0 - 1 wraps to 255 in uint8, the load adds one and masks, which gives 0 again)

Expectation, written first: the checkpoint format keeps zero-1; a zero of 0 underflows to 255, but loading adds one in
the same unsigned type and takes four bits, so every zero point comes back as it was. The weights are restored within
half a quantisation step.
"""
import torch


class QuantizeConfig:
    bits = 4
    group_size = 32


def find_params(weight, cfg):
    groups = weight.reshape(weight.shape[0], -1, cfg.group_size)
    wmin = groups.amin(dim=-1).clamp(max=0)
    wmax = groups.amax(dim=-1).clamp(min=0)
    scale = (wmax - wmin) / (2 ** cfg.bits - 1)
    zero = torch.round(-wmin / scale)
    return scale, zero


def quantize(weight, scale, zero, cfg):
    groups = weight.reshape(weight.shape[0], -1, cfg.group_size)
    q = torch.round(groups / scale[..., None]) + zero[..., None]
    return q.clamp(0, 2 ** cfg.bits - 1).to(torch.uint8)


def save_v1(zero):
    return zero.to(torch.uint8) - 1


def load_v1(qzeros, cfg):
    return (qzeros + 1) & (2 ** cfg.bits - 1)


class QuantLinear:
    def __init__(self, weight, cfg):
        self.cfg, self.shape = cfg, weight.shape
        self.scales, zero = find_params(weight, cfg)
        self.true_zero = zero
        self.qweight = quantize(weight, self.scales, zero, cfg)
        self.qzeros = save_v1(zero)

    def dequantize(self):
        zeros = load_v1(self.qzeros, self.cfg).float()
        w = (self.qweight.float() - zeros[..., None]) * self.scales[..., None]
        return w.reshape(self.shape), zeros


def main():
    torch.manual_seed(640)
    weight = torch.randn(64, 128)
    weight[:8] = weight[:8].abs()
    layer = QuantLinear(weight, QuantizeConfig())
    w, zeros = layer.dequantize()
    steps = ((w - weight).reshape(64, -1, 32).abs() / layer.scales[..., None]).max().item()
    wrong = (zeros != layer.true_zero).sum().item()
    print(f"zeros at 0: {int((layer.true_zero == 0).sum())} wrong zeros {wrong} largest error {steps:.2f} steps")


main()
