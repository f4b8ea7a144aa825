"""
title: quality head of a bf16 detector scored with BCE against float32 IoU targets
expect: collision
thread: https://github.com/Stability-AI/stable-audio-tools/issues/198
fix_at: 44

Expectation, written first: the box IoUs used as soft targets stay float32, the scores
are bf16 like the head; binary_cross_entropy refuses the pair. The head's cast is the
birth; the float cast of the scores at the loss is the better fix.
"""
import torch
from torch import nn


def box_iou(a, b):
    lt = torch.maximum(a[:, :2], b[:, :2])
    rb = torch.minimum(a[:, 2:], b[:, 2:])
    inter = (rb - lt).clamp(min=0).prod(1)
    area = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1)
    return inter / (area - inter)


class Detector(nn.Module):
    def __init__(self, feat=20):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(feat, 32), nn.GELU())
        self.delta = nn.Linear(32, 4)
        self.quality = nn.Linear(32, 1)

    def forward(self, feats, anchors):
        h = self.trunk(feats)
        boxes = anchors + 0.1 * self.delta(h).float()
        return boxes, torch.sigmoid(self.quality(h)).squeeze(-1)


class Criterion:
    def __init__(self, weight=1.0):
        self.weight = weight

    def __call__(self, boxes, quality, gt):
        with torch.no_grad():
            iou = box_iou(boxes, gt).clamp(0, 1)
        reg = nn.functional.smooth_l1_loss(boxes, gt)
        cls = nn.functional.binary_cross_entropy(quality, iou)  # COLLIDES
        return reg + self.weight * cls


def synth(n):
    xy = torch.rand(n, 2) * 8
    gt = torch.cat([xy, xy + 1 + torch.rand(n, 2) * 3], 1)
    return torch.randn(n, 20), gt + 0.2 * torch.randn(n, 4), gt


torch.manual_seed(21)
model = Detector().to(torch.bfloat16)  # BORN
criterion = Criterion()
opt = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(3):
    feats, anchors, gt = synth(16)
    boxes, quality = model(feats.to(model.quality.weight.dtype), anchors)
    loss = criterion(boxes, quality, gt)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print("iter", step, "loss", round(loss.item(), 4))
