"""
title: timestamp labels of a video, kept as int32 ids, are written into an int64 target
expect: collision
thread: https://github.com/ZheLi2020/TimestampActionSeg/issues/6
fix_at: 31, 39, 40

Expectation, written first: the ground-truth ids are int32 to save memory; the target tensor is int64 because the loss
wants it; writing the one into the other through an index tensor is refused.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Videos:
    """frame features and one randomly labelled frame in every action segment"""

    def __init__(self, count=4, classes=5, seed=0):
        rng = np.random.default_rng(seed)
        self.classes = classes
        self.features, self.stamps, self.ids = [], [], []
        for _ in range(count):
            order = rng.permutation(classes)
            spans = rng.integers(6, 14, classes)
            labels = np.repeat(order, spans)
            starts = np.concatenate(([0], spans.cumsum()[:-1]))
            noise = rng.standard_normal((len(labels), classes))
            self.features.append((np.eye(classes)[labels] + 0.3 * noise).astype(np.float32))
            self.stamps.append(starts + rng.integers(0, spans))
            self.ids.append(order.astype(np.int32))  # BORN

    def batch(self):
        longest = max(len(f) for f in self.features)
        x = torch.zeros(len(self.features), self.classes, longest)
        target = torch.full((len(self.features), longest), -100, dtype=torch.long)
        for k, (f, stamps, ids) in enumerate(zip(self.features, self.stamps, self.ids)):
            x[k, :, : len(f)] = torch.from_numpy(f.T)
            labels = torch.from_numpy(ids)  # BORN
            target[k, torch.from_numpy(stamps)] = labels  # COLLIDES
        return x, target


class Stage(nn.Module):
    def __init__(self, classes, width=16, layers=3):
        super().__init__()
        self.conv_in = nn.Conv1d(classes, width, 1)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 3, padding=2**i, dilation=2**i) for i in range(layers))
        self.conv_out = nn.Conv1d(width, classes, 1)

    def forward(self, x):
        x = self.conv_in(x)
        for layer in self.layers:
            x = x + F.relu(layer(x))
        return self.conv_out(x)


def main():
    torch.manual_seed(0)
    videos = Videos()
    x, target = videos.batch()
    model = Stage(videos.classes)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(30):
        loss = F.cross_entropy(model(x), target, ignore_index=-100)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss {loss.item():.4f}, stamps {int((target >= 0).sum())}")


main()
