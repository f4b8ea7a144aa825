"""
title: non-maximum suppression keeps every duplicate of a large object because box areas overflow in fp16
expect: silent:overflow|downcast
thread: https://github.com/pytorch/vision/pull/3383
measured: 36 proposals of 3 objects, 25 detections kept
widened: 36 proposals of 3 objects, 3 detections kept ; innocent: 36 proposals of 3 objects, 25 detections kept
suspect: 50 order (scores are fp16 as well, but they only sort the boxes and their gaps are wide)

Expectation, written first: the boxes come out of the detector in fp16; a box wider and higher than 256 pixels has an area above 65504,
which is infinite in fp16, so the overlap of two large boxes is nan or zero and nothing is suppressed, while small objects are treated
well. The scores in the same narrow type keep their order.
"""
import torch


def box_area(boxes):
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])  # BORN


def box_iou(boxes1, boxes2):
    area1, area2 = box_area(boxes1), box_area(boxes2)
    lt = torch.max(boxes1[:, None, :2], boxes2[:, :2])
    rb = torch.min(boxes1[:, None, 2:], boxes2[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[:, :, 0] * wh[:, :, 1]  # BORN
    return inter / (area1[:, None] + area2 - inter)


def nms(boxes, scores, iou_threshold):
    order = scores.argsort(descending=True)
    iou = box_iou(boxes, boxes)
    suppressed = torch.zeros(boxes.shape[0], dtype=torch.bool)
    keep = []
    for i in order.tolist():
        if suppressed[i]:
            continue
        keep.append(i)
        suppressed |= iou[i] > iou_threshold
    return torch.tensor(keep)


class PostProcessor:
    def __init__(self, iou_threshold=0.5, score_thresh=0.05, dtype=torch.float16):
        self.iou_threshold = iou_threshold
        self.score_thresh = score_thresh
        self.dtype = dtype

    def __call__(self, boxes, scores):
        boxes = boxes.to(self.dtype)  # BORN
        scores = scores.to(torch.float16)
        candidate = scores > self.score_thresh
        boxes, scores = boxes[candidate], scores[candidate]
        keep = nms(boxes, scores, self.iou_threshold)
        return boxes[keep], scores[keep]


def proposals(objects, copies):
    base = torch.tensor(objects).repeat_interleave(copies, 0)
    boxes = base + 4.0 * torch.randn(base.shape)
    scores = torch.linspace(0.95, 0.35, boxes.shape[0])[torch.randperm(boxes.shape[0])]
    return boxes, scores


def main():
    torch.manual_seed(0)
    objects = [[40.0, 60.0, 460.0, 520.0], [600.0, 80.0, 1100.0, 640.0], [1150.0, 30.0, 1230.0, 110.0]]
    boxes, scores = proposals(objects, copies=12)
    post = PostProcessor(iou_threshold=0.5, dtype=torch.float16)  # BORN
    kept, _ = post(boxes, scores)
    print(f"{boxes.shape[0]} proposals of {len(objects)} objects, {kept.shape[0]} detections kept")


if __name__ == "__main__":
    main()
