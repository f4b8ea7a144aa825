"""
title: a label map goes through interpolate as float and stays float until the loss
expect: collision
fix_at: 63

After https://github.com/mecarill/classawareteacher/issues/3 (the loss wants Long and got Float), a segmentation transform.
Right: bring the resized mask back to long.
"""
import random

import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(6)
random.seed(6)
CLASSES = 5


class RandomResize:
    def __init__(self, low, high):
        self.low, self.high = low, high

    def __call__(self, image, mask):
        scale = random.uniform(self.low, self.high)
        size = [int(s * scale) for s in mask.shape[-2:]]
        image = F.interpolate(image[None], size=size, mode="bilinear", align_corners=False)[0]
        mask = F.interpolate(mask[None, None].float(), size=size, mode="nearest")[0, 0]  # BORN
        return image, mask


class RandomFlip:
    def __call__(self, image, mask):
        if random.random() < 0.5:
            image, mask = image.flip(-1), mask.flip(-1)
        return image, mask


class CenterCrop:
    def __init__(self, size):
        self.size = size

    def __call__(self, image, mask):
        top, left = (mask.shape[0] - self.size) // 2, (mask.shape[1] - self.size) // 2
        window = (..., slice(top, top + self.size), slice(left, left + self.size))
        return image[window], mask[window]


TRANSFORMS = [RandomResize(1.0, 1.5), RandomFlip(), CenterCrop(16)]


def sample():
    image, mask = torch.rand(3, 20, 20), torch.randint(0, CLASSES, (20, 20))
    for transform in TRANSFORMS:
        image, mask = transform(image, mask)
    return image, mask


model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, CLASSES, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss(ignore_index=255)
for step in range(4):
    images, masks = (torch.stack(part) for part in zip(*(sample() for _ in range(4))))
    loss = criterion(model(images), masks)  # COLLIDES
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 3))
