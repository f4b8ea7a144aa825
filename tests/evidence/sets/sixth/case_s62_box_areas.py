"""
title: areas of large boxes are infinite in float16, overlaps are not numbers and nothing is suppressed
expect: silent:overflow|downcast|precision-loss

After https://github.com/pytorch/vision/issues/3371, https://github.com/zylo117/Yet-Another-EfficientDet-Pytorch/issues/153 and
https://github.com/open-mmlab/mmcv/issues/1663.
Right: areas are computed in float32.
"""
import torch
from torch import nn

torch.manual_seed(721)


class Head(nn.Module):
    """Many boxes near each object, as a half-precision detector gives them."""

    def __init__(self, dtype=torch.float16):
        super().__init__()
        self.dtype = dtype

    def forward(self, objects, each=12):
        boxes = objects.repeat_interleave(each, 0)
        boxes = boxes + 0.03 * (boxes[:, 2:] - boxes[:, :2]).repeat(1, 2) * torch.randn_like(boxes)
        return boxes.to(self.dtype), torch.rand(len(boxes)).to(self.dtype)


def area(box):
    return (box[..., 2] - box[..., 0]) * (box[..., 3] - box[..., 1])  # BORN


def overlap(a, b):
    corner = torch.maximum(a[:, None, :2], b[None, :, :2])
    other = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    inner = area(torch.cat([corner, torch.maximum(corner, other)], dim=-1))
    return inner / (area(a)[:, None] + area(b)[None] - inner)


def suppress(boxes, scores, limit=0.5):
    order = scores.argsort(descending=True)
    iou = overlap(boxes[order], boxes[order])
    kept, alive = [], torch.ones(len(order), dtype=torch.bool)
    for i in range(len(order)):
        if alive[i]:
            kept.append(order[i].item())
            alive &= ~(iou[i] > limit)
    return kept


def scene(objects=4):
    """Objects in a picture of 1600 by 1200, side by side."""
    left = torch.arange(objects) * 390.0 + 10
    width = 200 + 170 * torch.rand(objects)
    top = 50 + 300 * torch.rand(objects)
    return torch.stack([left, top, left + width, top + 150 + 550 * torch.rand(objects)], dim=1)


head = Head()
wanted = found = exact = 0
for image in range(15):
    objects = scene()
    boxes, scores = head(objects)
    wanted += len(objects)
    found += len(suppress(boxes, scores))
    exact += len(suppress(boxes.double(), scores.double()))
print("objects", wanted, "boxes kept", found, "kept in float64", exact)
