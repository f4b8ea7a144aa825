"""
title: mask areas are counted from boolean masks and stored as int32, the size categories are right
expect: clean
thread: https://github.com/roboflow/supervision/pull/2361
measured: areas [276, 850, 1173, 1541, 15394, 7118, 6184, 7587, 3214, 8790, 26645, 103230] | small: 2 objects, mean iou 0.87 | medium: 7 objects, mean iou 0.88 | large: 3 objects, mean iou 0.98 | fill of the boxes 0.787
suspect: line 28, an area is at most 409600

Expectation, written first: the pixels are counted with count_nonzero, which returns int64, and put into int32. An image of 640 x 640 has
less than half a million pixels, so nothing wraps; the sizes and the metric per category are exact.
"""
import torch

SIZE_THRESHOLDS = (32 ** 2, 96 ** 2)


class Detections:
    def __init__(self, mask, confidence, class_id):
        self.mask = mask
        self.confidence = confidence
        self.class_id = class_id

    def __len__(self):
        return len(self.mask)

    @property
    def area(self):
        counts = torch.stack([torch.count_nonzero(m) for m in self.mask])
        return counts.to(torch.int32)

    @property
    def box_area(self):
        out = []
        for m in self.mask:
            ys, xs = torch.nonzero(m, as_tuple=True)
            out.append((ys.max() - ys.min() + 1) * (xs.max() - xs.min() + 1))
        return torch.stack(out)


def get_mask_size_category(areas):
    result = torch.full_like(areas, 2)
    result[areas < SIZE_THRESHOLDS[1]] = 1
    result[areas < SIZE_THRESHOLDS[0]] = 0
    return result


def mask_iou_batch(truth, pred):
    a = truth.flatten(1).float()
    b = pred.flatten(1).float()
    inter = a @ b.T
    return inter / (a.sum(1)[:, None] + b.sum(1)[None] - inter)


def ellipse(size, cy, cx, ry, rx):
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    return ((y - cy) / ry) ** 2 + ((x - cx) / rx) ** 2 < 1


def annotate(size, g, n=12):
    masks = []
    for i in range(n):
        ry, rx = (float(v) for v in torch.rand(2, generator=g) * (8 + 18 * i) + 6)
        cy, cx = (float(v) for v in torch.rand(2, generator=g) * (size - 200) + 100)
        masks.append(ellipse(size, cy, cx, ry, rx))
    return torch.stack(masks)


size = 640
g = torch.Generator().manual_seed(5)
truth = annotate(size, g)
pred = torch.stack([m.roll(2, 0) for m in truth])
target = Detections(truth, None, torch.zeros(12, dtype=torch.int64))
found = Detections(pred, torch.rand(12, generator=g), torch.zeros(12, dtype=torch.int64))
category = get_mask_size_category(target.area)
iou = mask_iou_batch(truth, pred).diagonal()
print("areas", found.area.tolist())
for c, name in enumerate(("small", "medium", "large")):
    pick = category == c
    print("%s: %d objects, mean iou %.2f" % (name, pick.sum(), iou[pick].mean() if pick.any() else 0))
print("fill of the boxes %.3f" % (target.area / target.box_area).mean())
