"""
title: motion features from the difference of byte frames
expect: silent:overflow
modes: diagnose

After dwave-examples/image-segmentation#10 and waveform80/picamera#263: uint8 minus uint8 wraps.
Damage: mean |motion| 0.46 instead of 0.017. Right change: frames.float() (or int16) before the difference.
"""
import torch
import torch.nn as nn


def video(gen, frames=8, size=24):
    base = torch.randint(40, 200, (1, 3, size, size), generator=gen)
    jitter = torch.randint(-6, 7, (frames, 3, size, size), generator=gen)
    return (base + jitter).to(torch.uint8)


def motion(clip):
    diff = clip[1:] - clip[:-1]  # BORN
    return diff.float() / 255.0


class MotionNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2)
        self.head = nn.Linear(8, 2)

    def forward(self, m):
        return self.head(torch.relu(self.conv(m)).mean((2, 3)).mean(0, keepdim=True))


class Clips(torch.utils.data.IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        gen = torch.Generator().manual_seed(4)
        for i in range(self.n):
            yield video(gen), i % 2


torch.manual_seed(0)
net = MotionNet()
opt = torch.optim.SGD(net.parameters(), lr=0.05)
level = []
for clip, label in Clips(6):
    m = motion(clip)
    level.append(m.abs().mean().item())
    loss = nn.functional.cross_entropy(net(m), torch.tensor([label]))
    opt.zero_grad()
    loss.backward()
    opt.step()
print("mean motion", round(sum(level) / len(level), 4), "loss", round(loss.item(), 4))
