"""
title: duplicates survive class-wise NMS in a half precision detector: the class offset swallows the coordinates
expect: silent:precision-loss|overflow|downcast
thread: https://github.com/MultimediaTechLab/YOLO/pull/234
measured: 64 objects, 100 boxes kept, duplicates 36
widened: 64 objects, 64 boxes kept, duplicates 0
innocent: 64 objects, 100 boxes kept, duplicates 36
suspect: 60 half scores: order (only the ranking is used, and it keeps)

Expectation, written first: The boxes come in float16 and batched NMS shifts them by label * (max_coord + 1) in that dtype. At offsets of
    tens of thousands float16 has steps of 8 to 32 px, so boxes of one object fall on other grid points and their IoU is wrong. The half
    scores only order the boxes, and the order holds.
"""
import torch


def box_iou(a, b):
    lt, rb = torch.max(a[:, None, :2], b[None, :, :2]), torch.min(a[:, None, 2:], b[None, :, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[..., 0] * wh[..., 1]
    area = lambda x: (x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1])
    return inter / (area(a)[:, None] + area(b)[None] - inter).clamp(min=1e-6)


def nms(boxes, scores, thr):
    order, keep = scores.argsort(descending=True), []
    iou = box_iou(boxes.float(), boxes.float())
    alive = torch.ones(len(boxes), dtype=torch.bool)
    for i in order.tolist():
        if alive[i]:
            keep.append(i)
            alive &= iou[i] <= thr
    return torch.tensor(keep)


def batched_nms(boxes, scores, idxs, thr):
    max_coordinate = boxes.max()
    offsets = idxs.to(boxes) * (max_coordinate + 1)  # BORN
    boxes_for_nms = boxes + offsets[:, None]  # BORN
    return nms(boxes_for_nms, scores, thr)


class Vec2Box:
    def __init__(self, dtype):
        self.dtype = dtype

    def __call__(self, objects, labels, per_object=5):
        boxes = objects.repeat_interleave(per_object, 0)
        boxes = boxes + torch.randn_like(boxes) * 0.8
        scores = torch.linspace(0.99, 0.30, len(boxes))[torch.randperm(len(boxes))]
        return boxes.to(self.dtype), scores, labels.repeat_interleave(per_object)  # BORN


class PostProcess:
    def __init__(self, iou_thr=0.5, dtype=torch.float16):  # BORN
        self.iou_thr, self.convert = iou_thr, Vec2Box(dtype)

    def __call__(self, objects, labels):
        boxes, scores, cls = self.convert(objects, labels)
        scores = scores.to(torch.float16)
        keep = batched_nms(boxes, scores, cls, self.iou_thr)  # BORN
        return boxes[keep], cls[keep]


torch.manual_seed(3)
grid = torch.cartesian_prod(torch.arange(8), torch.arange(8)).float() * 76 + 20
objects = torch.cat([grid, grid + 24 + 20 * torch.rand(64, 1)], 1)
labels = torch.randint(0, 80, (64,))
kept, cls = PostProcess()(objects, labels)
print(f"{len(objects)} objects, {len(kept)} boxes kept, duplicates {len(kept) - len(objects)}")
