"""
title: predicted depth is written as 16-bit PNG for the benchmark
expect: clean
thread: https://github.com/nianticlabs/monodepth2/issues/221
measured: abs_rel 0.082 rmse 2.45 a1 0.97 farthest 80 m
suspect: 37 negligible (depth is clipped to 80 m, times 256 is 20480 and fits; a step is 4 mm)

Expectation, written first: metres times 256 as an int16-sized integer: 80 m becomes 20480, no wrap; cutting the fraction
costs at most 4 mm, invisible in the printed errors. The scale by 256 is that of the benchmark.
"""
import torch
import torch.nn.functional as F


STEREO_SCALE_FACTOR = 5.4
MIN_DEPTH, MAX_DEPTH = 1e-3, 80.0


def disp_to_depth(disp, min_depth=0.1, max_depth=100):
    min_disp, max_disp = 1 / max_depth, 1 / min_depth
    return 1 / (min_disp + (max_disp - min_disp) * disp)


def predict(generator, height=48, width=160):
    rows = torch.linspace(0.002, 0.12, height)[:, None].expand(height, width)
    jitter = 1 + 0.05 * torch.rand(height, width, generator=generator)
    return (rows * jitter)[None, None]


def resize(disp, scale=2):
    return F.interpolate(disp, scale_factor=scale, mode="bilinear", align_corners=False)[0, 0]


def export_depth(disp):
    depth = STEREO_SCALE_FACTOR * disp_to_depth(disp)
    depth = depth.clamp(0, MAX_DEPTH)
    return (depth * 256).to(torch.int16)


def read_depth(png):
    return png.float() / 256


def compute_errors(gt, pred):
    thresh = torch.maximum(gt / pred, pred / gt)
    a1 = (thresh < 1.25).float().mean().item()
    rmse = (gt - pred).square().mean().sqrt().item()
    abs_rel = ((gt - pred).abs() / gt).mean().item()
    return abs_rel, rmse, a1


def main():
    generator = torch.Generator().manual_seed(221)
    disp = resize(predict(generator))
    stored = read_depth(export_depth(disp))
    gt = (STEREO_SCALE_FACTOR * disp_to_depth(disp)).clamp(MIN_DEPTH, MAX_DEPTH)
    gt = gt * (1 + 0.1 * torch.randn(gt.shape, generator=generator)).clamp(0.7, 1.3)
    abs_rel, rmse, a1 = compute_errors(gt, stored.clamp(MIN_DEPTH, MAX_DEPTH))
    print(f"abs_rel {abs_rel:.3f} rmse {rmse:.2f} a1 {a1:.2f} farthest {stored.max():.0f} m")


main()
