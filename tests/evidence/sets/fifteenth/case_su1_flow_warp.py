"""
title: a video enhancer keeps its frames in half precision and warps them with a grid computed in float32
expect: collision
thread: https://github.com/pytorch/pytorch/issues/94733
fix_at: 22, 26, 49, 50, 60, 73, 74

Expectation, written first: the frame store halves everything it takes to save memory; the sampling grid stays
float32 for the sake of its coordinates and grid_sample wants one type for both.
"""
import torch
import torch.nn.functional as F
from torch import nn


class FrameStore:
    """the last few frames, as the decoder delivers them"""

    def __init__(self, keep=3):
        self.keep, self.frames = keep, []

    def push(self, frame):
        self.frames.append((frame.float() / 255).half())  # BORN
        del self.frames[: -self.keep]

    def pair(self):
        return self.frames[-2][None], self.frames[-1][None]


def base_grid(height, width):
    y, x = torch.meshgrid(torch.linspace(-1, 1, height), torch.linspace(-1, 1, width), indexing="ij")
    return torch.stack([x, y], -1)[None]


class FlowNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(6, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 2, 3, padding=1))

    def forward(self, before, after):
        return 0.05 * torch.tanh(self.net(torch.cat([before, after], 1).float()))


class Warper(nn.Module):
    def __init__(self, height, width):
        super().__init__()
        self.register_buffer("grid", base_grid(height, width))

    def forward(self, image, flow):
        where = self.grid + flow.permute(0, 2, 3, 1)
        return F.grid_sample(image, where, align_corners=True, padding_mode="border")  # COLLIDES


class Enhancer(nn.Module):
    def __init__(self, height, width):
        super().__init__()
        self.flow, self.warp = FlowNet(), Warper(height, width)
        self.fuse = nn.Conv2d(6, 3, 1)

    def forward(self, before, after):
        aligned = self.warp(before, self.flow(before, after))
        return self.fuse(torch.cat([aligned, after], 1).float()).clamp(0, 1)


class Player:
    def __init__(self, enhancer, store):
        self.enhancer, self.store = enhancer, store

    @torch.no_grad()
    def play(self, frames):
        for frame in frames:
            self.store.push(frame)
            if len(self.store.frames) > 1:
                before, after = self.store.pair()
                yield self.enhancer(before, after)


def film(count, height, width):
    gen = torch.Generator().manual_seed(9)
    scene = torch.randint(0, 256, (3, height, width + count), generator=gen, dtype=torch.uint8)
    for k in range(count):
        yield scene[:, :, k:k + width]


torch.manual_seed(0)
player = Player(Enhancer(24, 32), FrameStore())
print("mean of frames", [round(out.mean().item(), 4) for out in player.play(film(5, 24, 32))])
