"""
title: a motion detector widens uint8 frames to int16 before it subtracts them
expect: clean
modes: diagnose

Looks like the uint8 wrap-around of dwave-examples/image-segmentation#10; differences lie between -255 and 255 and fit int16. The
background is averaged in float32, the motion counts are int64.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(36)


def film(frames=24, size=32):
    """A bright square that moves over a dim, noisy ground."""
    out = torch.randint(20, 40, (frames, size, size), dtype=torch.uint8)
    for index in range(frames):
        out[index, 10:18, index : index + 8] = 220
    return out


class Motion(nn.Module):
    def __init__(self, threshold=30):
        super().__init__()
        self.threshold = threshold
        self.register_buffer("moved", torch.zeros((), dtype=torch.int64))

    def forward(self, frames):
        wide = frames.to(torch.int16)
        difference = wide[1:] - wide[:-1]
        mask = difference.abs() > self.threshold
        self.moved += mask.sum()
        return difference, mask


class Background(nn.Module):
    def __init__(self, size=32):
        super().__init__()
        self.register_buffer("mean", torch.zeros(size, size))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, frames):
        for frame in frames:
            self.count += 1
            self.mean += (frame.float() - self.mean) / self.count
        return self.mean


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.head = nn.Linear(4, 2)

    def forward(self, difference, mask):
        x = torch.stack([difference.float() / 255, mask.float()], dim=1)
        return self.head(F.relu(self.conv(x)).mean(dim=(-1, -2)))


def main():
    motion, background, detector = Motion(), Background(), Detector()
    optimizer = torch.optim.Adam(detector.parameters(), lr=1e-2)
    frames = film()
    difference, mask = motion(frames)
    labels = (torch.arange(len(mask)) % 2).long()
    for _ in range(3):
        loss = F.cross_entropy(detector(difference, mask), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ground = background(frames)
    print("moved", int(motion.moved), "range", int(difference.min()), int(difference.max()), "ground", round(ground.mean().item(), 2))


main()
