"""
title: PSNR of a super-resolution run is many dB too high: the difference of two uint8 images wraps
expect: silent:overflow|wraparound|integer-overflow
thread: https://github.com/XPixelGroup/BasicSR/issues/293
measured: PSNR 28.47 28.46 28.45 28.46 28.48, mean 28.464 dB
widened: PSNR 20.83 20.78 20.78 20.83 20.82, mean 20.809 dB
innocent: PSNR 28.47 28.48 28.44 28.47 28.48, mean 28.466 dB
suspect: 27 bf16 input: small (half a grey level beside an error of twenty)

Expectation, written first: tensor2img gives uint8 and calculate_psnr subtracts the images as they are, so negative differences and
    squares wrap modulo 256 and the MSE is wrong. The bfloat16 network looks like the loss of quality, but its rounding is under one grey
    level of twenty.
"""
import torch
from torch import nn
import torch.nn.functional as F


class EDVRLite(nn.Module):
    def __init__(self, scale=2):
        super().__init__()
        self.scale = scale
        self.blur = nn.Conv2d(3, 3, 3, padding=1, groups=3, bias=False)
        self.blur.weight.data.fill_(1 / 9)

    def forward(self, lq):
        lq = lq.to(torch.bfloat16).float()
        return self.blur(F.interpolate(lq, scale_factor=self.scale, mode="nearest"))


def tensor2img(t):
    return (t.clamp(0, 1) * 255).round().to(torch.uint8)


def calculate_psnr(img1, img2, crop_border):
    if crop_border:
        img1 = img1[..., crop_border:-crop_border, crop_border:-crop_border]
        img2 = img2[..., crop_border:-crop_border, crop_border:-crop_border]
    mse = ((img1 - img2) ** 2).float().mean()  # BORN
    return (20 * torch.log10(255.0 / mse.sqrt())).item()


def scene(seed):
    g = torch.Generator().manual_seed(seed)
    base = torch.rand(1, 3, 12, 12, generator=g)
    return (F.interpolate(base, size=(96, 96), mode="bicubic") + 0.10 * torch.randn(1, 3, 96, 96, generator=g)).clamp(0, 1)


class VideoRestorationModel:
    def __init__(self, net):
        self.net = net

    @torch.no_grad()
    def validate(self, clips):
        scores = []
        for gt in clips:
            lq = F.avg_pool2d(gt, 2)
            scores.append(calculate_psnr(tensor2img(self.net(lq)), tensor2img(gt), crop_border=4))
        return scores


psnr = VideoRestorationModel(EDVRLite()).validate([scene(s) for s in range(5)])
print("PSNR " + " ".join(f"{p:.2f}" for p in psnr) + f", mean {sum(psnr) / len(psnr):.3f} dB")
