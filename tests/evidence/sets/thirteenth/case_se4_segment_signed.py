"""
title: the differences of neighbouring pixels are taken from a signed copy of an eight bit picture
expect: clean
thread: https://github.com/dwave-examples/image-segmentation/pull/11
measured: pixels of the object 889 of 889, IoU 1.000

Expectation, written first: the suspects are the uint8 picture and the int16 copy, but the differences lie in
[-255, 255] and the weights are computed in float32 after the subtraction; the segmentation is that of a wide run.
"""
import torch
import torch.nn.functional as F


class Picture:
    def __init__(self, pixels):
        self.pixels = pixels.round().clamp(0, 255).to(torch.uint8)

    def signed(self):
        return self.pixels.to(torch.int16)


class PixelGraph:
    """four-neighbourhood with weights that fall with the colour distance"""

    def __init__(self, picture, width=30.0):
        image = picture.signed()
        self.right = self.weight(image[:, 1:] - image[:, :-1], width)
        self.down = self.weight(image[1:] - image[:-1], width)

    @staticmethod
    def weight(difference, width):
        squared = difference.float().square().sum(-1)
        return torch.exp(-squared / (2 * width**2))

    def smooth(self, field):
        total, weight = torch.zeros_like(field), torch.full_like(field, 1e-6)
        for w, axis in ((self.right, 1), (self.down, 0)):
            n = field.shape[axis] - 1
            a, b = field.narrow(axis, 0, n), field.narrow(axis, 1, n)
            total.narrow(axis, 0, n).add_(w * b)
            total.narrow(axis, 1, n).add_(w * a)
            weight.narrow(axis, 0, n).add_(w)
            weight.narrow(axis, 1, n).add_(w)
        return total / weight


def segment(graph, seeds, rounds=400):
    field = torch.zeros_like(seeds)
    for _ in range(rounds):
        field = torch.where(seeds != 0, seeds, graph.smooth(field))
    return field > 0


def scene(gen, size=64):
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    inside = ((x - 34).square() + (y - 30).square()) < 17**2
    colour = torch.where(inside[..., None], torch.tensor([200.0, 90.0, 60.0]), torch.tensor([250.0, 240.0, 235.0]))
    return Picture(colour + 8 * torch.randn(size, size, 3, generator=gen)), inside


def main():
    picture, truth = scene(torch.Generator().manual_seed(41))
    seeds = torch.zeros(64, 64)
    seeds[28:32, 32:36] = 1.0
    seeds[0], seeds[-1] = -1.0, -1.0
    found = segment(PixelGraph(picture), seeds)
    iou = ((found & truth).sum() / (found | truth).sum()).item()
    print(f"pixels of the object {int(found.sum())} of {int(truth.sum())}, IoU {iou:.3f}")


main()
