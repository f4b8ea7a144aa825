"""
title: a multi-level pooler gathers bfloat16 features of an autocast pyramid in a float32 result
expect: collision
fix_at: 34

After https://github.com/pytorch/vision/pull/2384 (poolers.py: result[idx_in_level] under autocast) and
https://github.com/pytorch/pytorch/pull/41036.
Right: allocate the result in the features' dtype.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(14)


class MultiScalePool(nn.Module):
    def __init__(self, size=2):
        super().__init__()
        self.size = size

    def pool_one(self, feature, box, stride):
        x0, y0, x1, y1 = (box / stride).round().int().tolist()
        x1, y1 = max(x1, x0 + 1), max(y1, y0 + 1)
        return F.adaptive_avg_pool2d(feature[:, y0:y1, x0:x1], self.size)

    def forward(self, features, boxes):
        levels = ((boxes[:, 2] - boxes[:, 0]) > 12).long()
        channels = features[0].shape[0]
        result = torch.zeros(len(boxes), channels, self.size, self.size)  # BORN
        for level, (feature, stride) in enumerate(zip(features, (2, 4))):
            index = torch.where(levels == level)[0]
            if len(index):
                pooled = torch.stack([self.pool_one(feature, box, stride) for box in boxes[index]])
                result[index] = pooled  # COLLIDES
        return result


class Detector(nn.Module):
    def __init__(self, channels=8, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, stride=2, padding=1)
        self.down = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        self.pool = MultiScalePool()
        self.head = nn.Linear(channels * 4, classes)

    def forward(self, image, boxes):
        low = self.stem(image[None])
        high = self.down(F.relu(low))
        pooled = self.pool([low[0], high[0]], boxes)
        return self.head(pooled.flatten(1))


def targets(n=6):
    corner = torch.randint(0, 16, (n, 2)).float()
    size = torch.randint(4, 16, (n, 1)).float()
    return torch.cat([corner, corner + size], dim=1), torch.randint(0, 4, (n,))


model = Detector()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(3):
    boxes, labels = targets()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = model(torch.rand(3, 32, 32), boxes)
    loss = F.cross_entropy(scores.float(), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 3))
