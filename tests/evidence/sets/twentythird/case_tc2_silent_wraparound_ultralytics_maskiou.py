"""
title: mask_iou multiplies uint8 masks, every intersection above 255 pixels wraps
expect: silent:integer-overflow|overflow|wraparound
thread: https://github.com/ultralytics/ultralytics/issues/15782
measured: best iou [0.062, 0.072, 0.067, 0.006] | mask mAP50-95 0.000
widened: best iou [0.947, 0.959, 0.936, 0.945] | mask mAP50-95 0.925
innocent: best iou [0.062, 0.073, 0.067, 0.007] | mask mAP50-95 0.000
suspect: line 36, the sign of the logits survives half, hence the masks

Expectation, written first: the masks are bytes and torch.matmul keeps that dtype, so the intersection counts modulo 256 while the sums
promote to int64. Nearly perfect predictions get an IoU near zero and the mask mAP collapses. Casting the masks to float inside
mask_iou cures it; taking the prototype logits in full precision instead of half changes no mask.
"""
import torch
import torch.nn.functional as F


def mask_iou(mask1, mask2, eps=1e-7):
    intersection = torch.matmul(mask1, mask2.T).clamp_(0)  # BORN
    union = (mask1.sum(1)[:, None] + mask2.sum(1)[None]) - intersection
    return intersection / (union + eps)


def disc(size, cy, cx, r):
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    return (y - cy) ** 2 + (x - cx) ** 2 < r ** 2


def polygons2masks(size, instances):
    return torch.stack([disc(size, *i) for i in instances]).to(torch.uint8)  # BORN


def process_mask(protos, coeffs, size):
    c, h, w = protos.shape
    logits = (coeffs @ protos.reshape(c, -1)).view(-1, h, w)
    logits = logits.to(torch.float16)
    masks = F.interpolate(logits[None].float(), size=size, mode="bilinear", align_corners=False)[0]
    return masks.gt(0.0).byte()  # BORN


class SegmentationValidator:
    def __init__(self):
        self.iouv = torch.linspace(0.5, 0.95, 10)
        self.stats = []

    def _process_batch(self, gt_masks, pred_masks):
        iou = mask_iou(gt_masks.flatten(1), pred_masks.flatten(1))  # BORN
        best = iou.max(1).values
        self.stats.append((best[:, None] >= self.iouv).float())
        return best

    def get_map(self):
        return torch.cat(self.stats).mean()


size = 96
torch.manual_seed(0)
instances = [(30, 28, 17), (62, 60, 22), (24, 72, 14), (75, 22, 16)]
gt = polygons2masks(size, instances)
y, x = torch.meshgrid(torch.arange(size // 2) * 2.0, torch.arange(size // 2) * 2.0, indexing="ij")
protos = torch.stack([torch.ones_like(y), y, x, y ** 2 + x ** 2]) / 100
coeffs = torch.stack([torch.tensor([r ** 2 - cy ** 2 - cx ** 2, 2.0 * cy, 2.0 * cx, -1.0]) for cy, cx, r in instances])
pred = process_mask(protos, coeffs, (size, size))

val = SegmentationValidator()
best = val._process_batch(gt, pred)
print("best iou", [round(v, 3) for v in best.tolist()])
print("mask mAP50-95 %.3f" % float(val.get_map()))
