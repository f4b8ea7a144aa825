"""
title: YOLO targets are assigned to grid cells and the cell indices are clamped with a float gain
expect: collision
thread: https://github.com/cv516Buaa/tph-yolov5/issues/48
fix_at: 33, 45

Expectation, written first: the gain vector is float32 because torch.ones makes it so, the cell indices are int64;
clamping the indices in place with a float bound would need a float result and is refused.
"""
import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, classes=3, anchors=((10.0, 13.0), (16.0, 30.0), (33.0, 23.0)), stride=8):
        super().__init__()
        self.classes, self.stride = classes, stride
        self.register_buffer("anchors", torch.tensor(anchors) / stride)
        self.conv = nn.Conv2d(8, len(anchors) * (5 + classes), 1)

    def forward(self, x):
        b, _, h, w = x.shape
        y = self.conv(x).view(b, len(self.anchors), 5 + self.classes, h, w)
        return y.permute(0, 1, 3, 4, 2)


class TargetBuilder:
    def __init__(self, head, ratio=4.0):
        self.head, self.ratio = head, ratio

    def __call__(self, p, targets):
        na, nt = len(self.head.anchors), len(targets)
        gain = torch.ones(7)  # BORN
        ai = torch.arange(na).float().view(na, 1).repeat(1, nt)
        targets = torch.cat((targets.repeat(na, 1, 1), ai[:, :, None]), 2)
        gain[2:6] = torch.tensor(p.shape)[[3, 2, 3, 2]]
        t = targets * gain
        r = t[:, :, 4:6] / self.head.anchors[:, None]
        t = t[torch.max(r, 1 / r).max(2)[0] < self.ratio]
        b, c = t[:, :2].long().T
        gxy = t[:, 2:4]
        gij = gxy.long()
        gi, gj = gij.T
        a = t[:, 6].long()
        cells = (b, a, gj.clamp_(0, gain[3] - 1), gi.clamp_(0, gain[2] - 1))  # COLLIDES
        return c, gxy - gij, cells


class DetectionLoss(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.build = TargetBuilder(head)

    def forward(self, p, targets):
        c, offset, cells = self.build(p, targets)
        rows = p[cells]
        objectness = torch.zeros(p.shape[:-1])
        objectness[cells] = 1.0
        loss = nn.functional.binary_cross_entropy_with_logits(p[..., 4], objectness)
        loss = loss + (rows[:, :2].sigmoid() - offset).square().mean()
        return loss + nn.functional.cross_entropy(rows[:, 5:], c)


def main():
    torch.manual_seed(0)
    head = Head()
    boxes = torch.rand(6, 4) * 0.4 + 0.2
    targets = torch.cat((torch.tensor([[0, 1], [0, 2], [1, 0], [1, 1], [2, 2], [3, 0]]).float(), boxes), 1)
    loss = DetectionLoss(head)(head(torch.randn(4, 8, 10, 10)), targets)
    loss.backward()
    print(f"loss {loss.item():.4f}")


main()
