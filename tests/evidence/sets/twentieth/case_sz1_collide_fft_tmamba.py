"""
title: half-precision inference of the 3-D segmentation network stops in the frequency branch
expect: collision
thread: https://github.com/isjinghao/T-Mamba/issues/4

Expectation, written first: with `--precision half` network and volume are float16, and the frequency block calls `rfftn` on the float16
features, for which the FFT has no kernel ("Unsupported dtype Half"). The features must be float32 for the transform, or the run must not be
in half.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

PRECISIONS = {"single": torch.float32, "half": torch.float16}


class SimpleFrequencyBlock(nn.Module):
    def __init__(self, channels, keep=0.5):
        super().__init__()
        self.low = nn.Parameter(torch.ones(channels))
        self.high = nn.Parameter(torch.full((channels,), 0.5))
        self.keep = keep

    def band(self, shape, device):
        grids = [torch.fft.fftfreq(n, device=device).abs() for n in shape[:-1]] + [torch.fft.rfftfreq(shape[-1], device=device)]
        radius = torch.stack(torch.meshgrid(*grids, indexing="ij")).norm(dim=0)
        return radius <= self.keep * 0.5

    def forward(self, x):
        spectrum = torch.fft.rfftn(x, dim=(-3, -2, -1))  # BORN COLLIDES
        mask = self.band(x.shape[-3:], x.device)
        gain = torch.where(mask, self.low.view(-1, 1, 1, 1).float(), self.high.view(-1, 1, 1, 1).float())
        return torch.fft.irfftn(spectrum * gain, s=x.shape[-3:], dim=(-3, -2, -1)).to(x.dtype)


class TimBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.InstanceNorm3d(channels, affine=True)
        self.spatial = nn.Conv3d(channels, channels, 3, padding=1, groups=channels)
        self.frequency = SimpleFrequencyBlock(channels)
        self.gate = nn.Conv3d(channels, channels, 1)

    def forward(self, x):
        y = self.norm(x)
        return x + torch.sigmoid(self.gate(y)) * (F.silu(self.spatial(y)) + self.frequency(y))


class TMamba3D(nn.Module):
    def __init__(self, classes=2, channels=8):
        super().__init__()
        self.stem = nn.Conv3d(1, channels, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(TimBlock(channels), TimBlock(channels))
        self.head = nn.Conv3d(channels, classes, 1)

    def forward(self, x):
        y = self.head(self.blocks(self.stem(x)))
        return F.interpolate(y.float(), size=x.shape[-3:], mode="trilinear", align_corners=False)


def dice(pred, target, eps=1e-5):
    inter = (pred & target).sum().item()
    return (2 * inter + eps) / (pred.sum().item() + target.sum().item() + eps)


@torch.no_grad()
def evaluate(model, volumes, precision):
    dtype = PRECISIONS[precision]
    model = model.to(dtype).eval()
    scores = []
    for volume, label in volumes:
        logits = model(volume.to(dtype))
        scores.append(dice(logits.argmax(dim=1).bool(), label))
    return scores


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", choices=sorted(PRECISIONS), default="half")  # BORN
    args = parser.parse_args()
    torch.manual_seed(6)
    volumes = [(torch.randn(1, 1, 16, 16, 16), torch.rand(1, 16, 16, 16) > 0.6) for _ in range(2)]
    print("dice", [round(s, 4) for s in evaluate(TMamba3D(), volumes, args.precision)])
