"""
title: uint8 images are promoted to int64 before their difference is taken
expect: clean
thread: https://github.com/pytorch/vision/pull/6977
measured: (48, 60) -> (24, 40): max 1 mean 0.08 share 0.1 / (36, 36) -> (54, 48): max 1 mean 0.04 share 0.0 / (60, 42) -> (42, 42): max 1 mean 0.06 share 0.1
suspect: 23 meant (the kernels return images in uint8, rounded and clamped)

Expectation, written first: Two resize kernels for uint8 images, one in float and one in integers, are compared. Both round to
uint8, as images do. The comparison promotes to int64 first, so differences of -1 do not wrap to 255; the largest is 1.
"""
import torch
import torch.nn.functional as F


def make_image(size, generator):
    low = torch.rand(3, size[0] // 6, size[1] // 6, generator=generator)
    smooth = F.interpolate(low[None], size=size, mode="bilinear", align_corners=False)[0]
    return (smooth * 255).round().to(torch.uint8)


def resize_float(image, size):
    out = F.interpolate(image[None].float(), size=size, mode="bilinear", align_corners=False)[0]
    return out.round_().clamp_(0, 255).to(torch.uint8)


def integer_weights(in_size, out_size, bits):
    pos = ((torch.arange(out_size, dtype=torch.float64) + 0.5) * in_size / out_size - 0.5).clamp(min=0)
    left = pos.floor().long().clamp(max=in_size - 1)
    right = (left + 1).clamp(max=in_size - 1)
    w_right = ((pos - left) * (1 << bits)).round().to(torch.int32)
    return left, right, (1 << bits) - w_right, w_right


def resize_integer(image, size, bits=11):
    x = image.to(torch.int32)
    top, bottom, wt, wb = integer_weights(image.shape[1], size[0], bits)
    x = x[:, top] * wt[:, None] + x[:, bottom] * wb[:, None]
    x = (x + (1 << (bits - 4))) >> (bits - 3)
    left, right, wl, wr = integer_weights(image.shape[2], size[1], bits)
    x = x[:, :, left] * wl + x[:, :, right] * wr
    x = (x + (1 << (bits + 2))) >> (bits + 3)
    return x.clamp(0, 255).to(torch.uint8)


class ImagePair:
    def __init__(self, actual, expected, agg_method="mean", atol=1.0):
        self.actual, self.expected = self._promote_for_comparison(actual, expected)
        self.agg_method, self.atol = agg_method, atol

    def _promote_for_comparison(self, actual, expected):
        if actual.is_floating_point():
            return actual, expected
        return actual.to(torch.int64), expected.to(torch.int64)

    def compare(self):
        abs_diff = (self.actual - self.expected).abs()
        agg = getattr(abs_diff.to(torch.float64), self.agg_method)().item()
        if agg > self.atol:
            raise AssertionError(f"{self.agg_method} of the absolute difference is {agg}, allowed {self.atol}")
        return abs_diff.max().item(), agg, (abs_diff > 0).to(torch.float64).mean().item()


def main():
    generator = torch.Generator().manual_seed(6977)
    for size, new_size in (((48, 60), (24, 40)), ((36, 36), (54, 48)), ((60, 42), (42, 42))):
        image = make_image(size, generator)
        pair = ImagePair(resize_integer(image, new_size), resize_float(image, new_size))
        largest, mean, share = pair.compare()
        print(f"{size} -> {new_size}: max {largest} mean {mean:.2f} share {share:.1f}")


if __name__ == "__main__":
    main()
