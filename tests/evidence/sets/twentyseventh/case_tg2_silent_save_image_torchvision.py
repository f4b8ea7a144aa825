"""
title: save_image shows speckles where the generator leaves [0, 1]
expect: silent:overflow|downcast
thread: https://github.com/pytorch/vision/pull/121
measured: speckles 2967 mean of the saved picture 0.541, of the tensor 0.424
widened: speckles 0 mean of the saved picture 0.423, of the tensor 0.424; innocent: speckles 2967 mean of the saved picture 0.541, of the tensor 0.424
suspect: 43 exact (zeros and ones)

Expectation, written first: mul(255).byte() wraps modulo 256, so a value of 1.02 becomes 4 and -0.01 becomes 254: black
dots in white areas and the reverse. Remedy: clamp to [0, 255] before byte(). The half mask is exact.
"""
import torch
import torch.nn as nn


def make_grid(tensor, nrow=4, padding=2, pad_value=0.0):
    n, c, h, w = tensor.shape
    rows = (n + nrow - 1) // nrow
    grid = torch.full((c, rows * (h + padding) + padding, nrow * (w + padding) + padding), pad_value)
    for k in range(n):
        y, x = divmod(k, nrow)
        top, left = y * (h + padding) + padding, x * (w + padding) + padding
        grid[:, top:top + h, left:left + w] = tensor[k]
    return grid


def save_image(tensor, nrow=4, padding=2):
    """returns the bytes of a PPM file"""
    grid = make_grid(tensor, nrow=nrow, padding=padding)
    ndarr = grid.mul(255).byte().permute(1, 2, 0)  # BORN
    header = f"P6 {ndarr.shape[1]} {ndarr.shape[0]} 255\n".encode()
    return header, ndarr.contiguous()


class Generator(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.blur = nn.Conv2d(1, 3, 5, padding=2, bias=False)
        nn.init.constant_(self.blur.weight, 1 / 25)
        self.size = size

    def forward(self, z):
        mask = (z > 0).half()
        smooth = self.blur(mask.float())
        return 1.5 * smooth - 0.25


def speckles(image):
    x = image.to(torch.int16)
    return ((x[1:] - x[:-1]).abs() > 180).sum().item()


@torch.no_grad()
def main():
    torch.manual_seed(121)
    coarse = torch.randn(8, 1, 8, 8)
    z = nn.functional.interpolate(coarse, scale_factor=4, mode="bilinear")
    fake = Generator(32)(z)
    _, pixels = save_image(fake, padding=0)
    print(f"speckles {speckles(pixels)} mean of the saved picture {pixels.float().mean() / 255:.3f}, of the tensor {fake.clamp(0, 1).mean():.3f}")


main()
