"""
title: aerial labels resized as float images reach scatter_ of the class-weighted loss
expect: collision
thread: https://github.com/samleoqh/MSCG-Net/issues/7
fix_at: 26, 75

Expectation, written first: the collate function resizes the label map with interpolate, for which it casts it to
float, and never casts it back. The loss makes one-hot labels with scatter_, which wants an integer index, and
raises. The resized labels have to be long again.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class AdaptiveClassWeightLoss(nn.Module):
    def __init__(self, num_classes, ignore_index=255, eps=1e-5):
        super().__init__()
        self.num_classes, self.ignore_index, self.eps = num_classes, ignore_index, eps
        self.weight, self.itr = 0.0, 0

    def one_hot(self, pred, target):
        valid = (target != self.ignore_index).unsqueeze(1)
        index = target.masked_fill(target == self.ignore_index, 0).unsqueeze(1)
        label = torch.zeros_like(pred).scatter_(1, index, 1.0)  # COLLIDES
        return label * valid, valid

    def class_weight(self, label):
        self.itr += 1
        freq = label.sum(dim=(0, 2, 3))
        freq = freq / freq.sum()
        self.weight = (self.weight * (self.itr - 1) + freq) / self.itr
        mfb = self.weight.mean() / (self.weight + self.eps)
        return (mfb / mfb.sum()).clamp(0.001, 1.0)[None, :, None, None]

    def forward(self, logits, target):
        pred = logits.softmax(1)
        label, valid = self.one_hot(pred.detach(), target)
        err = (label - pred).pow(2)
        pnc = err - ((1.0 - err + self.eps) / (1.0 + err + self.eps)).log()
        acw = (1.0 + pred + label) * self.class_weight(label) * valid
        dice = (2 * (pred * label).sum((0, 2, 3)) + self.eps) / (((pred + label) * valid).sum((0, 2, 3)) + self.eps)
        return (acw * pnc).sum(1).mean() - dice.mean().log()


def collate_tiles(samples, size):
    images = torch.stack([torch.from_numpy(s["image"]) for s in samples]).permute(0, 3, 1, 2) / 255.0
    labels = torch.stack([torch.from_numpy(s["label"]) for s in samples])
    images = F.interpolate(images, size=size, mode="bilinear", align_corners=False)
    labels = F.interpolate(labels[:, None].float(), size=size, mode="nearest")[:, 0]  # BORN
    return images, labels


class TileSource:
    def __init__(self, n, num_classes, tile=20):
        rng = np.random.default_rng(1)
        self.samples = []
        for _ in range(n):
            label = rng.integers(0, num_classes, (tile, tile))
            label[:2] = 255
            self.samples.append({"image": rng.integers(0, 256, (tile, tile, 4)).astype(np.uint8), "label": label})

    def batches(self, batch_size, size):
        for i in range(0, len(self.samples), batch_size):
            yield collate_tiles(self.samples[i : i + batch_size], size)


if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(4, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 5, 1))
    criterion = AdaptiveClassWeightLoss(num_classes=5)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for images, labels in TileSource(8, 5).batches(4, size=(16, 16)):
        main_loss = criterion(net(images), labels)
        optimizer.zero_grad()
        main_loss.backward()
        optimizer.step()
    print("main loss", f"{main_loss.item():.4f}")
