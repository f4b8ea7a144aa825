"""
title: PSNR of generated right views is ten decibels too good: uint8 frames are subtracted
expect: silent:wraparound|integer-overflow|overflow
thread: https://github.com/song2yu/Mono2Stereo/issues/13
measured: mse 100  psnr 28.2 dB
widened: mse 1307  psnr 17.0 dB
innocent: mse 100  psnr 28.2 dB
suspect: 27 sub-pixel

Expectation, written first: eval_stereo subtracts two uint8 images and squares the result in uint8 as well, so both the difference and its square wrap
around at 256 and the mean squared error comes out far too small. The disparity that warps the left view is float16, which shifts the sampling
by thousandths of a pixel and leaves the PSNR alone.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class DisparityNet(nn.Module):
    def __init__(self, scale=6.0):
        super().__init__()
        self.scale = scale
        self.conv = nn.Conv2d(3, 1, 5, padding=2)

    def forward(self, left):
        disparity = torch.sigmoid(self.conv(left)) * self.scale
        disparity = disparity.half()
        return disparity


def warp_to_right(left, disparity):
    n, _, h, w = left.shape
    ys, xs = torch.meshgrid(torch.arange(h).float(), torch.arange(w).float(), indexing="ij")
    xs = xs[None] + disparity[:, 0].float()
    grid = torch.stack([2 * xs / (w - 1) - 1, 2 * ys[None].expand_as(xs) / (h - 1) - 1], dim=-1)
    return F.grid_sample(left, grid, align_corners=True, padding_mode="border")


def to_image(x):
    return (x.clamp(0, 1) * 255).round().to(torch.uint8)


def eval_stereo(pred, target):
    diff = pred - target  # BORN
    mse = (diff ** 2).float().mean()  # BORN
    rmse = mse.sqrt()
    psnr = 20 * torch.log10(255.0 / rmse)
    return {"mse": mse.item(), "psnr": psnr.item()}


def synthetic_pair(index, size=48):
    g = torch.Generator().manual_seed(index)
    coarse = torch.rand(1, 3, 8, 8, generator=g)
    left = F.interpolate(coarse, size=(size, size), mode="bilinear", align_corners=True)
    right = left.roll(-2, dims=3) + 0.12 * torch.randn(left.shape, generator=g)
    return left, right


@torch.no_grad()
def main():
    torch.manual_seed(0)
    net = DisparityNet().eval()
    totals = {"mse": 0.0, "psnr": 0.0}
    pairs = 8
    for index in range(pairs):
        left, right = synthetic_pair(index)
        right_to_save = to_image(warp_to_right(left, net(left)))
        right_image = to_image(right)
        result = eval_stereo(right_to_save, right_image)  # BORN
        for key in totals:
            totals[key] += result[key] / pairs
    print(f"mse {totals['mse']:.0f}  psnr {totals['psnr']:.1f} dB")


if __name__ == "__main__":
    main()
