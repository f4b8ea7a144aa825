"""
title: linear weight quantisation in the weights' float16 gives a scale of zero for a channel of small weights
expect: silent:underflow|precision-loss|downcast
thread: https://github.com/apple/coremltools/pull/2851
measured: relative error by channel [0.0, 0.0, 0.0, 0.0, 1.0, 1.0] | zero channels 2 of 6
widened: relative error by channel [0.0, 0.0, 0.0, 0.0, 0.01, 0.02] | zero channels 0 of 6; innocent: relative error by channel [0.0, 0.0, 0.0, 0.0, 1.0, 1.0] | zero channels 2 of 6
suspect: line 37 - innocent: the codes are clamped to -127..127 first, int8 holds them exactly

Expectation, written first: the per-channel scale is (max - min) / 254 in the dtype of the float16 weights. A channel
whose weights are near 3e-6 has a scale of 2e-8, below half the smallest float16, so the scale is zero and the whole
channel dequantises to zeros. The other channels are right. The int8 cast of the codes is not to blame.
"""
import torch
from torch import nn

NBITS = 8
QMAX = 2 ** (NBITS - 1) - 1


class OpLinearQuantizerConfig:
    def __init__(self, mode="linear_symmetric", weight_dtype=torch.float16):  # BORN
        self.mode = mode
        self.weight_dtype = weight_dtype


def compute_scale(val, dim):
    val_max = val.amax(dim=dim, keepdim=True)
    val_min = val.amin(dim=dim, keepdim=True)
    bound = torch.maximum(val_max.abs(), val_min.abs())
    return bound / QMAX  # BORN


def quantize_weight(val, config):
    scale = compute_scale(val, dim=1)
    safe = torch.where(scale == 0, torch.ones_like(scale), scale)
    codes = torch.round(val.float() / safe.float()).clamp(-QMAX, QMAX)
    return codes.to(torch.int8), scale


def decompress(codes, scale):
    return codes.float() * scale.float()


def linear_quantize_weights(model, config):
    packed = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            weight = module.weight.detach().to(config.weight_dtype)  # BORN
            packed[name] = quantize_weight(weight, config)
    return packed


def build_model(dim=32):
    model = nn.Sequential(nn.Linear(dim, 6, bias=False))
    magnitudes = torch.tensor([0.3, 0.02, 1e-3, 1e-4, 3e-6, 2e-6]).unsqueeze(1)
    with torch.no_grad():
        model[0].weight.copy_((torch.rand(6, dim) * 2 - 1) * magnitudes)
    return model


def main():
    torch.manual_seed(1)
    model = build_model()
    packed = linear_quantize_weights(model, OpLinearQuantizerConfig())
    weight = model[0].weight.detach()
    restored = decompress(*packed["0"])
    err = (restored - weight).norm(dim=1) / weight.norm(dim=1)
    print("relative error by channel", [round(e, 2) for e in err.tolist()])
    print("zero channels", int((restored.abs().amax(1) == 0).sum()), "of", weight.shape[0])


if __name__ == "__main__":
    main()
