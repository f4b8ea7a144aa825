"""
title: batched suppression shifts float16 boxes by image and class and stops suppressing
expect: silent:precision-loss|downcast
thread: https://github.com/MultimediaTechLab/YOLO/pull/234
measured: objects 5 a picture; detections of a single picture [5], of a batch [8, 7, 10, 6, 8, 6, 5, 5]
widened: objects 5 a picture; detections of a single picture [5], of a batch [5, 5, 5, 5, 5, 5, 5, 5]

Expectation, written first: with a label of twenty-odd the shifted corners lie beyond thirty thousand, where float16
has steps of sixteen and thirty-two; boxes of one object no longer overlap enough or have no area, and duplicates stay. The
innocent suspect is the score tensor in float16: only the order of nearly equal scores could change.
"""
import torch


def box_iou(box, others):
    lt, rb = torch.maximum(box[:2], others[:, :2]), torch.minimum(box[2:], others[:, 2:])
    inter = (rb - lt).clamp(min=0).prod(-1)
    area = lambda b: (b[..., 2] - b[..., 0]) * (b[..., 3] - b[..., 1])
    return inter / (area(box) + area(others) - inter)


def nms(boxes, scores, threshold):
    order, kept = scores.argsort(descending=True), []
    while len(order):
        best, rest = order[0], order[1:]
        kept.append(best.item())
        iou = box_iou(boxes[best], boxes[rest])
        order = rest[~(iou > threshold)]
    return torch.tensor(kept)


def batched_nms(boxes, scores, labels, threshold):
    offsets = labels.to(boxes.dtype) * (boxes.max() + 1)  # BORN
    return nms((boxes + offsets[:, None]).float(), scores.float(), threshold)


class Detector:
    """predictions of a mixed precision run: six boxes around each object"""

    def __init__(self, gen):
        self.gen = gen

    def predict(self, objects, classes, size=1800):
        corner = torch.rand(objects, 2, generator=self.gen) * (size - 60)
        wh = 24 + 30 * torch.rand(objects, 2, generator=self.gen)
        truth = torch.cat([corner, corner + wh], -1)
        boxes = truth.repeat_interleave(6, 0) + 1.5 * torch.randn(objects * 6, 4, generator=self.gen)
        category = torch.randint(0, classes, (objects,), generator=self.gen).repeat_interleave(6)
        scores = 0.3 + 0.7 * torch.rand(objects * 6, generator=self.gen)
        return boxes.half(), scores.half(), category  # BORN


def postprocess(predictions, threshold=0.5):
    count = len(predictions)
    boxes = torch.cat([p[0] for p in predictions])
    scores = torch.cat([p[1] for p in predictions])
    image = torch.cat([torch.full((len(p[0]),), i) for i, p in enumerate(predictions)])
    category = torch.cat([p[2] for p in predictions])
    kept = batched_nms(boxes, scores, image + category * count, threshold)
    return torch.bincount(image[kept], minlength=count)


def main():
    detector = Detector(torch.Generator().manual_seed(25))
    single = postprocess([detector.predict(objects=5, classes=4)])
    batch = postprocess([detector.predict(objects=5, classes=4) for _ in range(8)])
    print(f"objects 5 a picture; detections of a single picture {single.tolist()}, of a batch {batch.tolist()}")


main()
