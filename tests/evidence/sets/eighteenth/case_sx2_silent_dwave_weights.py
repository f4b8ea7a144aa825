"""
title: segmentation weights between pixels depend on their order: the colour difference wraps around
expect: silent:wraparound|integer-overflow|overflow
thread: https://github.com/dwave-examples/image-segmentation/issues/10
measured: asymmetry 1.000, cut between object and ground 886.7, mean weight inside 0.255
widened: asymmetry 0.000, cut between object and ground 0.0, mean weight inside 0.989
innocent: asymmetry 0.999, cut between object and ground 886.7, mean weight inside 0.255
suspect: line 33 harmless (weights in 0..1 to three digits)

Expectation, written first: the image stays uint8 and the difference of two pixels is taken in uint8, so dark minus bright
becomes a small number and the pair counts as similar. The weights are not symmetric and dark and bright pixels are joined.
The rounding of the weights to float16 is visible but does not matter.
"""
import torch


def load_image(height=8, width=8):
    pixels = torch.full((height, width, 3), 3.0)
    pixels[:, width // 2:] = 250.0
    pixels += torch.randn(height, width, 3) * 2
    return pixels.clamp(0, 255).to(torch.uint8)  # BORN


def pixel_distance(a, b):
    difference = a - b  # BORN
    return difference.float().norm(dim=-1)


def weight(img, first, second, sigma=30.0):
    a = img.reshape(-1, 3)[first]
    b = img.reshape(-1, 3)[second]
    distance = pixel_distance(a, b)
    return torch.exp(-(distance**2) / (2 * sigma**2)).to(torch.float16).float()


def all_pairs(img):
    n = img.shape[0] * img.shape[1]
    first = torch.arange(n).repeat_interleave(n)
    second = torch.arange(n).repeat(n)
    return first, second, n


def weight_matrix(img):
    first, second, n = all_pairs(img)
    return weight(img, first, second).reshape(n, n)


def cut_energy(weights, labels):
    apart = labels[:, None] != labels[None, :]
    return weights[apart].sum().item()


def mean_weight(weights, labels):
    together = labels[:, None] == labels[None, :]
    return weights[together].mean().item()


def main():
    torch.manual_seed(0)
    img = load_image()
    weights = weight_matrix(img)
    truth = (torch.arange(64) % 8 >= 4).long()
    asymmetry = (weights - weights.t()).abs().max().item()
    print(f"asymmetry {asymmetry:.3f}, cut between object and ground {cut_energy(weights, truth):.1f}, mean weight inside {mean_weight(weights, truth):.3f}")


main()
