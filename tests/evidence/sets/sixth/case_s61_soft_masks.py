"""
title: instance masks come as integers from the label file, they are scaled bilinearly to the network's grid much later
expect: collision
fix_at: 29

After https://github.com/UX-Decoder/Segment-Everything-Everywhere-All-At-Once/issues/34 and https://github.com/pytorch/pytorch/issues/5580.
Right: the masks are float32 before they are scaled.
"""
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(607)


@dataclass
class Sample:
    image: torch.Tensor
    masks: torch.Tensor


def decode(labels, image):
    """A label map with one number per instance becomes a stack of masks."""
    ids = [i for i in np.unique(labels) if i > 0]
    masks = torch.from_numpy(np.stack([labels == i for i in ids]).astype(np.int64))  # BORN
    return Sample(torch.from_numpy(image), masks)


class Scenes:
    def __init__(self, side=32):
        self.side = side

    def __getitem__(self, index):
        draw = np.random.default_rng(index)
        labels = np.zeros((self.side, self.side), dtype=np.int32)
        for instance in (1, 2):
            top, left = draw.integers(0, self.side // 2, 2)
            labels[top:top + 12, left:left + 12] = instance
        image = np.stack([labels > 0, labels == 1, draw.random((self.side, self.side))]).astype(np.float32)
        return decode(labels, image)


def targets(sample, size):
    soft = F.interpolate(sample.masks[None], size=size, mode="bilinear", align_corners=False)[0]  # COLLIDES
    return soft.amax(0)


class Foreground(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 3, padding=1))

    def forward(self, x):
        return self.net(x)[:, 0]


scenes, model = Scenes(), Foreground()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(4):
    samples = [scenes[i] for i in range(epoch * 4, epoch * 4 + 4)]
    logits = model(torch.stack([s.image for s in samples]))
    wanted = torch.stack([targets(s, logits.shape[-2:]) for s in samples])
    loss = F.binary_cross_entropy_with_logits(logits, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", round(loss.item(), 3))
