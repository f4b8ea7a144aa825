"""
title: the colour mapping fitted with kernelP leaves a large residual
expect: silent:integer-overflow|overflow|wraparound
thread: https://github.com/mahmoudnafifi/Deep_White_Balance/issues/15
measured: MAE 2.57 dE 5.08
widened: MAE 0.71 dE 1.44; innocent: MAE 2.57 dE 5.08
suspect: 18 exact (a column of ones)

Expectation, written first: the pixels arrive as uint8 and the second and third order products are taken in uint8, so
they wrap modulo 256; the least squares fit then works on noise. Remedy: floats before the products. The column of ones
in uint8 is exact.
"""
import torch


def kernelP(I):
    r, g, b = I[:, 0], I[:, 1], I[:, 2]  # BORN
    ones = torch.ones(I.shape[0], dtype=torch.uint8)
    cross = [r * g, r * b, g * b]  # BORN
    squares = [r * r, g * g, b * b]  # BORN
    triple = r * g * b  # BORN
    return torch.stack([c.double() for c in (r, g, b, *cross, *squares, triple, ones)], dim=1)


def get_mapping_func(image1, image2):
    source = image1.reshape(-1, 3)
    target = image2.reshape(-1, 3).double()
    features = kernelP(source)  # BORN
    scale = features.abs().amax(dim=0).clamp(min=1)
    solution = torch.linalg.lstsq(features / scale, target).solution
    return solution / scale.unsqueeze(1)


def apply_mapping_func(image, mapping):
    h, w, _ = image.shape
    features = kernelP(image.reshape(-1, 3))  # BORN
    return (features @ mapping).reshape(h, w, 3)


def out_of_gamut_clipping(image):
    return image.clamp(0, 255)


def render_pair(height, width, generator):
    linear = torch.rand(height, width, 3, generator=generator)
    first = (255 * linear.pow(1 / 1.6)).round()
    gains = torch.tensor([0.82, 0.95, 1.0])
    second = (255 * (linear * gains).pow(1 / 2.0)).round()
    return first.to(torch.uint8), second.to(torch.uint8)


def deep_wb_color_transfer(small_in, small_out, full_in):
    mapping = get_mapping_func(small_in, small_out)
    return out_of_gamut_clipping(apply_mapping_func(full_in, mapping))


def mean_abs_error(result, target):
    return (result - target.double()).abs().mean().item()


def delta_e_like(result, target):
    return (result - target.double()).pow(2).sum(-1).sqrt().mean().item()


def main():
    generator = torch.Generator().manual_seed(15)
    full_in, full_out = render_pair(96, 96, generator)
    small_in, small_out = full_in[::3, ::3], full_out[::3, ::3]
    result = deep_wb_color_transfer(small_in, small_out, full_in)
    print(f"MAE {mean_abs_error(result, full_out):.2f} dE {delta_e_like(result, full_out):.2f}")


main()
