"""
title: faint splats are blended into a frame buffer of bytes
expect: silent:lost-update|precision-loss|round-trip
thread: https://github.com/hyperlogic/splatapult/issues/16
measured: mean colour [0.0, 0.002, 0.0], black pixels 100.0%
widened: mean colour [0.212, 0.264, 0.186], black pixels 0.0%

Expectation, written first: each splat adds less than half a grey level and the buffer is rounded after each, so the
sum of hundreds of them never arrives; the colour shifts towards what was drawn first.
"""
import torch


class FrameBuffer:
    def __init__(self, height, width, dtype=torch.uint8):  # BORN
        self.pixels = torch.zeros(height, width, 3, dtype=dtype)  # BORN
        self.dtype = dtype

    def blend(self, colour, alpha):
        old = self.pixels.float()
        new = old * (1 - alpha[..., None]) + 255 * alpha[..., None] * colour
        if not self.dtype.is_floating_point:
            new = new.round().clamp(0, 255)
        self.pixels = new.to(self.dtype)

    def image(self):
        return self.pixels.float() / 255


class Splats:
    def __init__(self, n, size, gen):
        self.centre = torch.rand(n, 2, generator=gen) * size
        self.radius = 4 + 6 * torch.rand(n, generator=gen)
        self.opacity = 0.001 + 0.003 * torch.rand(n, generator=gen)
        self.colour = torch.tensor([0.35, 0.45, 0.3]) + 0.1 * torch.rand(n, 3, generator=gen)

    def __len__(self):
        return len(self.centre)


class Rasterizer:
    def __init__(self, size):
        self.size = size
        self.y, self.x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")

    def alpha(self, s, i):
        cy, cx = s.centre[i]
        d = ((self.y - cy) ** 2 + (self.x - cx) ** 2) / s.radius[i] ** 2
        return s.opacity[i] * torch.exp(-0.5 * d)

    def __call__(self, s):
        target = FrameBuffer(self.size, self.size)
        for i in range(len(s)):
            target.blend(s.colour[i], self.alpha(s, i))
        return target.image()


gen = torch.Generator().manual_seed(0)
size = 32
image = Rasterizer(size)(Splats(1500, size, gen))
print(f"mean colour {[round(v, 3) for v in image.mean((0, 1)).tolist()]}, black pixels {100 * (image.sum(-1) < 0.02).float().mean().item():.1f}%")
