"""
title: the EPS of the box coder disappears in half precision and the box loss is NaN
expect: silent:underflow|downcast
thread: https://github.com/rwightman/efficientdet-pytorch/issues/291
measured: box loss nan weight norm 0.927
widened: box loss 0.1145 weight norm 0.927; innocent: box loss nan weight norm 0.927
suspect: 56 exact (a quarter)

Expectation, written first: padded ground truth boxes have no height; encode adds EPS = 1e-8 before the log to keep it
finite. With boxes and anchors in float16 that addition changes nothing, log(0) is -inf, and -inf times the box weight
0 is NaN in the loss. In float32 the log is about -20 and the weight removes it. The half alpha is exact.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

EPS = 1e-8


def get_center_coordinates_and_sizes(boxes):
    ymin, xmin, ymax, xmax = boxes.unbind(-1)
    return (ymin + ymax) / 2, (xmin + xmax) / 2, ymax - ymin, xmax - xmin


class FasterRcnnBoxCoder:
    def encode(self, boxes, anchors):
        ycenter_a, xcenter_a, ha, wa = get_center_coordinates_and_sizes(anchors)
        ycenter, xcenter, h, w = get_center_coordinates_and_sizes(boxes)
        ha, wa, h, w = ha + EPS, wa + EPS, h + EPS, w + EPS  # BORN
        tx, ty = (xcenter - xcenter_a) / wa, (ycenter - ycenter_a) / ha
        tw, th = torch.log(w / wa), torch.log(h / ha)  # BORN
        return torch.stack([ty, tx, th, tw], dim=-1)


class BoxHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Linear(16, 4)

    def forward(self, x):
        return self.conv(x)


class DetBench(nn.Module):
    def __init__(self, anchors, compute_dtype):
        super().__init__()
        self.head = BoxHead()
        self.coder = FasterRcnnBoxCoder()
        self.anchors = anchors.to(compute_dtype)  # BORN
        self.compute_dtype = compute_dtype

    def forward(self, features, gt_boxes, is_object):
        gt = gt_boxes.to(self.compute_dtype)  # BORN
        targets = self.coder.encode(gt, self.anchors).float()
        weight = is_object.float().unsqueeze(-1)
        alpha = torch.tensor(0.25, dtype=torch.float16)
        box = F.smooth_l1_loss(self.head(features), targets, reduction="none")
        return alpha.float() * (box * weight).sum() / weight.sum()


def sample(n, generator):
    top_left = torch.randint(0, 200, (n, 2), generator=generator).float()
    size = torch.randint(8, 60, (n, 2), generator=generator).float()
    anchors = torch.cat([top_left, top_left + size], dim=1)
    gt = anchors + torch.randint(-3, 4, (n, 4), generator=generator)
    is_object = torch.arange(n) % 4 != 0
    gt[~is_object] = 0.0
    return anchors, gt, is_object


def main():
    torch.manual_seed(291)
    generator = torch.Generator().manual_seed(291)
    anchors, gt, is_object = sample(64, generator)
    bench = DetBench(anchors, compute_dtype=torch.float16)  # BORN
    optimizer = torch.optim.SGD(bench.parameters(), lr=0.05)
    features = torch.randn(64, 16, generator=generator)
    for step in range(20):
        loss = bench(features, gt, is_object)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"box loss {loss.item():.4f} weight norm {bench.head.conv.weight.norm().item():.3f}")


main()
