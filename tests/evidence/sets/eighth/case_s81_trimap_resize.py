"""
title: resizing the unknown-area map of a matting network
expect: collision
thread: https://github.com/yucornetto/MGMatting/issues/4

Expectation, written first: the unknown-area weight comes from an integer dilation
count and stays an integer tensor; nearest upsampling has no kernel for it (not implemented
for 'Int'). BORN is where the map is made int32; a float map mends it.
"""
import torch
from torch import nn
from torch.nn import functional as F


class UnknownArea:
    """1 where the coarse alpha is neither sure foreground nor sure background."""

    def __init__(self, width):
        self.width = width

    def __call__(self, alpha):
        unsure = (alpha > 0.05) & (alpha < 0.95)
        grown = F.max_pool2d(unsure.float(), self.width, stride=1, padding=self.width // 2)
        return grown.to(torch.int32)  # BORN


class MattingNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 1, 3, padding=1))
        self.unknown = UnknownArea(3)

    def refine(self, coarse, fine):
        weight = self.unknown(coarse)
        weight = F.interpolate(weight, size=fine.shape[-2:], mode="nearest")  # COLLIDES
        base = F.interpolate(coarse, size=fine.shape[-2:], mode="bilinear", align_corners=False)
        return base * (1 - weight) + fine * weight

    def forward(self, image, guide):
        fine = torch.sigmoid(self.body(torch.cat([image, guide], 1)))
        coarse = F.avg_pool2d(0.8 * guide + 0.2 * fine, 4)
        return self.refine(coarse, fine)


def portrait(size=32):
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    r = ((yy - size / 2) ** 2 + (xx - size / 2) ** 2).sqrt()
    guide = (r < size / 3).float()[None, None]
    image = torch.stack([guide[0, 0], 1 - guide[0, 0], r / size])[None]
    return image, guide


def main():
    torch.manual_seed(6)
    image, guide = portrait()
    with torch.no_grad():
        alpha = MattingNet()(image, guide)
    print("mean alpha %.3f" % alpha.mean().item())


if __name__ == "__main__":
    main()
