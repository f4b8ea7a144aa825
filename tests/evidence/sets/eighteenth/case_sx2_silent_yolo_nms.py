"""
title: duplicate detections survive NMS when the batch is large and the boxes are half
expect: silent:overflow|precision-loss
thread: https://github.com/MultimediaTechLab/YOLO/pull/234
measured: detections per image [6, 6, 6, 6, 6, 7, 14, 10], total 61 for 48 objects
widened: detections per image [6, 6, 6, 6, 6, 6, 6, 6], total 48 for 48 objects
innocent: detections per image [6, 6, 6, 6, 6, 7, 14, 10], total 61 for 48 objects
suspect: line 44 harmless (the order of the scores hardly changes)

Expectation, written first: NMS keeps groups apart by shifting boxes by label * (max_coord + 1), and does so in the boxes'
float16. With labels up to batch times classes the shift is rounded to 16 or 32 pixels or is inf, the IoU of duplicates is
0 or nan, and they survive. The sigmoid of the scores in half is not the reason.
"""
import torch


def box_iou(a, b):
    area = lambda x: (x[..., 2] - x[..., 0]) * (x[..., 3] - x[..., 1])
    lt, rb = torch.max(a[:, None, :2], b[None, :, :2]), torch.min(a[:, None, 2:], b[None, :, 2:])
    wh = (rb - lt).clamp(min=0).float()
    inter = wh[..., 0] * wh[..., 1]
    return inter / (area(a.float())[:, None] + area(b.float())[None] - inter)


def nms(boxes, scores, iou_threshold):
    iou = box_iou(boxes, boxes)
    keep, order = [], scores.argsort(descending=True, stable=True).tolist()
    suppressed = torch.zeros(len(boxes), dtype=torch.bool)
    for i in order:
        if suppressed[i]:
            continue
        keep.append(i)
        suppressed |= iou[i] > iou_threshold
    return torch.tensor(keep)


def batched_nms(boxes, scores, idxs, iou_threshold):
    offsets = idxs.to(boxes) * (boxes.max() + 1)  # BORN
    return nms(boxes + offsets[:, None], scores, iou_threshold)  # BORN


def bbox_nms(cls_logits, boxes, min_confidence=0.25, min_iou=0.5):
    batch_size = cls_logits.shape[0]
    score = cls_logits.sigmoid()
    conf, cls = score.max(dim=-1)
    batch_idx, box_idx = torch.nonzero(conf > min_confidence, as_tuple=True)
    valid_box, valid_conf = boxes[batch_idx, box_idx], conf[batch_idx, box_idx]
    valid_cls = cls[batch_idx, box_idx]
    keep = batched_nms(valid_box, valid_conf, batch_idx + valid_cls * batch_size, min_iou)  # BORN
    return [torch.nonzero(batch_idx[keep] == b).shape[0] for b in range(batch_size)]


def detector_output(batch_size=8, objects=6, duplicates=5, classes=3):
    corner = torch.rand(batch_size, objects, 1, 2) * 2800
    size = torch.rand(batch_size, objects, 1, 2) * 60 + 60
    jitter = torch.randn(batch_size, objects, duplicates, 4) * 2
    boxes = torch.cat([corner, corner + size], dim=-1) + jitter
    label = torch.randint(0, classes, (batch_size, objects, 1)).expand(-1, -1, duplicates)
    logits = torch.full((batch_size, objects, duplicates, classes), -4.0)
    logits.scatter_(-1, label[..., None], 2.0 + torch.rand(batch_size, objects, duplicates, 1))
    return logits.flatten(1, 2), boxes.flatten(1, 2)


def main():
    torch.manual_seed(0)
    cls_logits, boxes = detector_output()
    found = bbox_nms(cls_logits.half(), boxes.half())
    print(f"detections per image {found}, total {sum(found)} for 48 objects")


main()
