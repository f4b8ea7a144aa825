"""
title: The distance-to-boundary map of a segmentation mask is stored as bytes without a clamp
expect: silent:overflow|wraparound|integer-overflow|downcast
thread: https://github.com/NVIDIA/DIGITS/pull/1531
measured: pixels with a wrong distance = 17.3%, share weighted as boundary = 9.49% (true 7.42%)
widened: pixels with a wrong distance = 0.0%, share weighted as boundary = 7.63% (true 7.42%)

Expectation, written first.  Distances to the object boundary reach 490 pixels
in these large masks.  The map is cast from float to uint8 as it is: 256 becomes
0 and the map shows bands.  The boundary-weighted loss built on it takes the
inside of the object for boundary.  BORN is the cast to uint8; a wider integer
(or a clamp before the cast) mends it.
"""
import torch
import torch.nn.functional as F

torch.manual_seed(0)


def disc_mask(size=1000, radius=490):
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    c = size // 2
    return ((x - c) ** 2 + (y - c) ** 2 <= radius ** 2), (x - c, y - c, radius)


class DistanceTarget:
    """Chamfer distance by repeated dilation would be slow; discs have it in closed form."""

    def __init__(self, limit=None):
        self.limit = limit

    def __call__(self, geometry):
        dx, dy, radius = geometry
        distance = (torch.sqrt((dx ** 2 + dy ** 2).float()) - radius).abs().round()
        return distance.to(torch.uint8)  # BORN


def boundary_weight(distance, sigma=8.0):
    return 1.0 + 10.0 * torch.exp(-(distance.float() / sigma) ** 2)


def weighted_loss(logits, mask, weight):
    loss = F.binary_cross_entropy_with_logits(logits, mask.float(), reduction="none")
    return (loss * weight).sum() / weight.sum()


def main():
    mask, geometry = disc_mask()
    distance = DistanceTarget()(geometry)
    weight = boundary_weight(distance)
    dx, dy, radius = geometry
    exact = (torch.sqrt((dx ** 2 + dy ** 2).double()) - radius).abs()
    wrong = ((distance.double() - exact).abs() > 1).double().mean().item()
    heavy = (weight > 2).double().mean().item()
    wanted = (boundary_weight(exact) > 2).double().mean().item()
    loss = weighted_loss(torch.where(mask, 3.0, -3.0), mask, weight)
    print(f"loss = {loss.item():.4f}")
    print(f"pixels with a wrong distance = {100 * wrong:.1f}%, share weighted as boundary = {100 * heavy:.2f}% (true {100 * wanted:.2f}%)")


if __name__ == "__main__":
    main()
