"""
title: the range of an MRI volume is found in int16; the bias field is kept in bfloat16
expect: silent:integer-overflow|overflow
thread: https://github.com/icometrix/dicom2nifti/pull/144
measured: slope 0.352, background voxels off by more than ten 100.0%, their mean -12141
widened: slope 1.000, background voxels off by more than ten 0.0%, their mean -40960

Expectation, written first: the background is -32768 and its negative is itself, so the largest magnitude seems small
and the scale to int16 lets the signal wrap. The bias field is a power of two and exact.
"""
import torch


class Series:
    def __init__(self, volume):
        self.pixels = volume.to(torch.int16)


class Rescaler:
    """fits a volume into int16 with one slope"""

    limit = 32_767

    def magnitude(self, pixels):
        low, high = pixels.min(), pixels.max()
        return torch.maximum(-low, high).item()  # BORN

    def slope(self, pixels):
        return max(self.magnitude(pixels), 1) / self.limit

    def __call__(self, pixels):
        slope = self.slope(pixels)
        codes = (pixels.float() / slope).round()
        return codes.to(torch.int32).remainder(65_536), slope

    @staticmethod
    def restore(codes, slope):
        signed = torch.where(codes > 32_767, codes - 65_536, codes)
        return signed.float() * slope


class Corrector:
    def __init__(self, shape):
        self.field = torch.full(shape, 0.5).to(torch.bfloat16)
        self.field[shape[0] // 2:] = 2.0

    def __call__(self, volume):
        return volume * self.field.float()


def head(size=24, seed=0):
    gen = torch.Generator().manual_seed(seed)
    z, y, x = torch.meshgrid(*[torch.linspace(-1, 1, size)] * 3, indexing="ij")
    inside = (x ** 2 + y ** 2 + z ** 2) < 0.7
    signal = 9000 + 2000 * torch.sin(4 * x) + 200 * torch.randn(size, size, size, generator=gen)
    return torch.where(inside, signal, torch.tensor(-32_768.0)), inside


def main():
    volume, inside = head()
    series, rescale = Series(volume), Rescaler()
    codes, slope = rescale(series.pixels)
    correct = Corrector(volume.shape)
    got = correct(rescale.restore(codes, slope))[~inside]
    want = correct(series.pixels.float())[~inside]
    wrong = ((got - want).abs() > 10).double().mean().item()
    print(f"slope {slope:.3f}, background voxels off by more than ten {100 * wrong:.1f}%, their mean {got.mean().item():.0f}")


main()
