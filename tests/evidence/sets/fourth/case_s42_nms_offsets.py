"""
title: class offsets are added to half boxes before suppression, the far classes end at inf
expect: silent:overflow|precision-loss|downcast
fix_at: 53, 54

After https://github.com/MultimediaTechLab/YOLO/pull/234 and https://github.com/pytorch/vision/pull/3383: 7680 * class id passes 65504 from class 9 on, the
overlap of inf boxes is nan and nothing is suppressed. The images in half are innocent.
Here 216 detections stay of 60 objects (repaired: 60). Right: float32 before the offsets.
"""
import torch
from torch import nn

torch.manual_seed(38)
MAX_WH = 7680


class Head(nn.Module):
    """Decodes a grid into boxes around the objects that the picture was drawn from."""

    def __init__(self, copies=4):
        super().__init__()
        self.copies = copies
        self.mix = nn.Conv2d(3, 4, 1)

    def forward(self, images, objects):
        noise = self.mix(images).mean((2, 3))
        boxes = objects[:, None, :4] + 3 * torch.rand(len(objects), self.copies, 4) + 0.01 * noise.float().mean()
        scores = 0.5 + 0.5 * torch.rand(len(objects), self.copies, 1)
        labels = objects[:, None, 4:5].expand(-1, self.copies, -1)
        return torch.cat([boxes, scores, labels], dim=-1).flatten(0, 1)


def iou(box, others):
    top = torch.maximum(box[:2], others[:, :2])
    low = torch.minimum(box[2:], others[:, 2:])
    inter = (low - top).clamp(min=0).prod(-1)
    area = lambda b: (b[..., 2] - b[..., 0]) * (b[..., 3] - b[..., 1])
    return inter / (area(box) + area(others) - inter)


def nms(boxes, scores, threshold=0.45):
    order, keep = scores.argsort(descending=True), []
    while len(order):
        keep.append(order[0].item())
        rest = order[1:]
        order = rest[~(iou(boxes[order[0]], boxes[rest]) > threshold)]
    return keep


def postprocess(prediction, confidence=0.25):
    prediction = prediction.half()  # BORN
    prediction = prediction[prediction[:, 4] > confidence]
    offset = prediction[:, 5:6] * MAX_WH
    keep = nms(prediction[:, :4] + offset, prediction[:, 4])
    return prediction[keep]


def scene(n=20, classes=80):
    corner = 500 * torch.rand(n, 2)
    return torch.cat([corner, corner + 60 + 60 * torch.rand(n, 2), torch.randperm(classes)[:n, None].float()], dim=1)


model = Head().eval()
found = objects_seen = 0
with torch.no_grad():
    for frame in range(3):
        objects = scene()
        images = torch.rand(1, 3, 16, 16).half().float()
        found += len(postprocess(model(images, objects)))
        objects_seen += len(objects)
print("objects", objects_seen, "detections", found)
