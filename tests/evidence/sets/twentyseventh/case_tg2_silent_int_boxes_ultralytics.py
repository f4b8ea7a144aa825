"""
title: integer boxes lose their half pixels in the xyxy / xywh conversion
expect: silent:downcast|round-trip
thread: https://github.com/ultralytics/ultralytics/pull/25514
measured: 212 boxes, IoU after the round trip 0.630, corner shift 0.583 px
widened: 212 boxes, IoU after the round trip 1.000, corner shift 0.000 px; innocent: 212 boxes, IoU after the round trip 0.630, corner shift 0.583 px
suspect: 56 exact (the scores are multiples of 1/16 and the threshold is 0.5)

Expectation, written first: the annotations are integer tensors and empty_like gives an integer result, so the centre
(x1 + x2) / 2 and half the width are cut to whole pixels when stored. For objects a few pixels wide the box that comes
back has lost a whole side. Remedy: a float result. The half confidences are exact.
"""
import torch


def empty_like(x):
    return torch.empty_like(x)  # BORN


def xyxy2xywh(x):
    y = empty_like(x)  # BORN
    y[..., 0] = (x[..., 0] + x[..., 2]) / 2  # BORN
    y[..., 1] = (x[..., 1] + x[..., 3]) / 2  # BORN
    y[..., 2] = x[..., 2] - x[..., 0]
    y[..., 3] = x[..., 3] - x[..., 1]
    return y


def xywh2xyxy(x):
    y = empty_like(x)  # BORN
    xy = x[..., :2]
    wh = x[..., 2:] / 2
    y[..., :2] = xy - wh  # BORN
    y[..., 2:] = xy + wh  # BORN
    return y


def bbox_iou(a, b, eps=1e-7):
    a, b = a.float(), b.float()
    inter = (torch.min(a[:, 2:], b[:, 2:]) - torch.max(a[:, :2], b[:, :2])).clamp_(0).prod(1)
    area = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - inter
    return inter / (area + eps)


class DroneLabels:
    """pixel boxes of tiny objects, as a labelling tool writes them: whole numbers"""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        xy = torch.randint(0, 600, (n, 2), generator=g)
        wh = torch.randint(3, 8, (n, 2), generator=g)
        self.boxes = torch.cat([xy, xy + wh], dim=1)
        self.scores = torch.randint(0, 17, (n,), generator=g) / 16

    def confident(self, threshold=0.5):
        conf = self.scores.half()
        return self.boxes[conf >= threshold]


def main():
    boxes = DroneLabels(400, 25514).confident()
    xywh = xyxy2xywh(boxes)
    back = xywh2xyxy(xywh)
    iou = bbox_iou(back, boxes)
    shift = (back.float() - boxes.float()).abs().mean()
    print(f"{len(boxes)} boxes, IoU after the round trip {iou.mean():.3f}, corner shift {shift:.3f} px")


main()
