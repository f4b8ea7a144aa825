"""
title: SSIM of 8-bit images is wrong when the batch is half precision
expect: silent:precision-loss|downcast
thread: https://github.com/VainF/pytorch-msssim/issues/17
measured: ssim 0.512 ssim of the image with itself 1.000
widened: ssim 0.947 ssim of the image with itself 1.000; innocent: ssim 0.512 ssim of the image with itself 1.000
suspect: 48 exact (quarters and halves)

Expectation, written first: the local variance is E[x * x] - mu * mu. With values up to 255 both terms are near 50000,
where float16 steps by 32; the variance of the texture is of that size, and the difference is mostly rounding, often
negative. In float32 the SSIM is right. The region weights in half are exact.
"""
import torch
import torch.nn.functional as F


def _fspecial_gauss_1d(size, sigma):
    coords = torch.arange(size, dtype=torch.float) - size // 2
    g = torch.exp(-(coords ** 2) / (2 * sigma ** 2))
    return (g / g.sum()).view(1, 1, -1)


def gaussian_filter(x, win):
    out = F.conv2d(x, win.unsqueeze(2))
    return F.conv2d(out, win.unsqueeze(3))


def _ssim(X, Y, data_range, win, K=(0.01, 0.03)):
    C1, C2 = (K[0] * data_range) ** 2, (K[1] * data_range) ** 2
    win = win.to(X.dtype)
    mu1, mu2 = gaussian_filter(X, win), gaussian_filter(Y, win)  # BORN
    mu1_sq, mu2_sq, mu1_mu2 = mu1.pow(2), mu2.pow(2), mu1 * mu2  # BORN
    sigma1_sq = gaussian_filter(X * X, win) - mu1_sq  # BORN
    sigma2_sq = gaussian_filter(Y * Y, win) - mu2_sq  # BORN
    sigma12 = gaussian_filter(X * Y, win) - mu1_mu2  # BORN
    cs_map = (2 * sigma12 + C2) / (sigma1_sq + sigma2_sq + C2)
    l_num, l_den = mu1_mu2 / 128 + C1 / 256, mu1_sq / 256 + mu2_sq / 256 + C1 / 256
    return (l_num / l_den * cs_map).float()


class RegionSSIM:
    def __init__(self, data_range=255, win_size=11, win_sigma=1.5):
        self.win = _fspecial_gauss_1d(win_size, win_sigma)
        self.data_range = data_range

    def __call__(self, X, Y):
        ssim_map = _ssim(X, Y, self.data_range, self.win)
        weight = torch.tensor([0.25, 0.5, 0.25], dtype=torch.float16)
        thirds = ssim_map.tensor_split(3, dim=-1)
        return sum(w * t.mean() for w, t in zip(weight.float(), thirds))


def load_pair(generator):
    yy, xx = torch.meshgrid(torch.arange(96), torch.arange(96), indexing="ij")
    base = 225 + 6 * torch.sin(xx / 3.0) + 5 * torch.cos(yy / 4.0)
    noise = torch.randn(96, 96, generator=generator) * 2
    clean = base.round().clamp(0, 255)
    return clean.view(1, 1, 96, 96), (base + noise).round().clamp(0, 255).view(1, 1, 96, 96)


def main():
    clean, generated = load_pair(torch.Generator().manual_seed(17))
    ssim = RegionSSIM()
    X, Y = clean.half(), generated.half()  # BORN
    value = ssim(X, Y).item()
    print(f"ssim {value:.3f} ssim of the image with itself {ssim(X, X).item():.3f}")


main()
