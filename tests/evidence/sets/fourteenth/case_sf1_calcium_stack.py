"""
title: a stack of calcium images loses its mean in numpy and is denoised patch by patch
expect: collision
thread: https://github.com/cabooster/SRDTrans/issues/16
fix_at: 30, 31, 46, 47, 58, 65, 66, 69

Expectation, written first: the raw stack is uint16; subtracting its mean makes numpy compute in float64 and the
patches stay so; the three-dimensional convolution of the float32 network refuses them.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


def record(frames=12, size=32, seed=2):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:size, :size]
    movie = np.full((frames, size, size), 120.0)
    for _ in range(5):
        y, x = rng.integers(4, size - 4, 2)
        trace = 200 * rng.random(frames)[:, None, None]
        movie += trace * np.exp(-((yy - y) ** 2 + (xx - x) ** 2) / 9)
    return rng.poisson(movie).astype(np.uint16)


class PatchSet(Dataset):
    def __init__(self, stack, depth=4, side=16, gap=8):
        self.mean = stack.mean()
        self.stack = stack - self.mean  # BORN
        self.depth, self.side = depth, side
        t, h, w = stack.shape
        self.corners = [
            (a, b, c)
            for a in range(0, t - depth + 1, depth)
            for b in range(0, h - side + 1, gap)
            for c in range(0, w - side + 1, gap)
        ]

    def __len__(self):
        return len(self.corners)

    def __getitem__(self, k):
        a, b, c = self.corners[k]
        patch = self.stack[a : a + self.depth, b : b + self.side, c : c + self.side]
        return torch.from_numpy(patch[None]), k  # BORN


class Denoiser(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.down = nn.Conv3d(1, width, 3, padding=1)
        self.mid = nn.Conv3d(width, width, 3, padding=1)
        self.up = nn.Conv3d(width, 1, 1)

    def forward(self, x):
        h = F.leaky_relu(self.down(x))  # COLLIDES
        return x + self.up(F.leaky_relu(self.mid(h)))


@torch.no_grad()
def main():
    torch.manual_seed(2)
    patches = PatchSet(record())
    net = Denoiser().eval()
    out = np.zeros_like(patches.stack)
    for noisy, ks in DataLoader(patches, batch_size=9):
        clean = net(noisy)
        for k, block in zip(ks.tolist(), clean[:, 0].numpy()):
            a, b, c = patches.corners[k]
            out[a : a + 4, b : b + 16, c : c + 16] = block
    print(out.shape, round(float(out.mean() + patches.mean), 2))


main()
