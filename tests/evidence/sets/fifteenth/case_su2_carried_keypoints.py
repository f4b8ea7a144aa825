"""
title: a tracker keeps lost people for some frames and copies their keypoints through the type of the masks
expect: silent:integer-truncation|downcast|precision-loss
thread: https://github.com/facebookresearch/detectron2/pull/5544
measured: people drawn per frame 1.67, masks per frame 1.95
widened: people drawn per frame 2.00, masks per frame 1.95

Expectation, written first: keypoints are x, y and a score below one; through uint8 the score becomes zero, so carried
people are not drawn and the count drops whenever the detector blinks. The masks themselves, zeros and ones, take the
same way without harm.
"""
import numpy as np
import torch


class Detections:
    def __init__(self, boxes, keypoints, masks):
        self.boxes, self.keypoints, self.masks = boxes, keypoints, masks

    def __len__(self):
        return len(self.boxes)


class Detector:
    """two people who walk; every third frame one of them is missed"""

    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)

    def __call__(self, t):
        people = [0, 1] if t % 3 else [t % 2]
        boxes, points, masks = [], [], []
        for p in people:
            x = 20.0 + 60 * p + 0.7 * t
            boxes.append([x, 10.0, x + 30, 90.0])
            xy = torch.rand(5, 2, generator=self.gen) * 10 + torch.tensor([x, 30.0])
            score = 0.7 + 0.25 * torch.rand(5, 1, generator=self.gen)
            points.append(torch.cat([xy, score], dim=1))
            grid = torch.zeros(100, 140)
            grid[10:90, int(x):int(x) + 30] = 1
            masks.append(grid)
        return Detections(torch.tensor(boxes), torch.stack(points), torch.stack(masks))


def iou(a, b):
    low, high = torch.maximum(a[:, None, :2], b[None, :, :2]), torch.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = (high - low).clamp(min=0).prod(-1)
    area = lambda q: (q[:, 2:] - q[:, :2]).prod(-1)
    return inter / (area(a)[:, None] + area(b)[None] - inter)


class IouTracker:
    def __init__(self, max_lost=3, threshold=0.5):
        self.max_lost, self.threshold = max_lost, threshold
        self.previous, self.lost = None, []

    def update(self, now):
        if self.previous is None:
            self.previous, self.lost = now, [0] * len(now)
            return now
        seen = iou(self.previous.boxes, now.boxes).amax(1) > self.threshold
        keep = [i for i in range(len(self.previous)) if not seen[i] and self.lost[i] < self.max_lost]
        self.lost = [0] * len(now) + [self.lost[i] + 1 for i in keep]
        self.previous = self.merge(now, keep)
        return self.previous

    def merge(self, now, keep):
        boxes = torch.cat([now.boxes, self.previous.boxes[keep]])
        masks = torch.cat([now.masks, torch.from_numpy(self.previous.masks[keep].numpy().astype(np.uint8)).float()])
        old = self.previous.keypoints[keep].numpy().astype(np.uint8)  # BORN
        points = torch.cat([now.keypoints, torch.IntTensor(old.astype(np.int32)).float()])
        return Detections(boxes, points, masks)


def main():
    detector, tracker = Detector(seed=2), IouTracker()
    drawn = covered = frames = 0
    for t in range(1, 61):
        people = tracker.update(detector(t))
        drawn += int((people.keypoints[..., 2] > 0.5).all(-1).sum())
        covered += people.masks.sum().item() / 2400
        frames += 1
    print(f"people drawn per frame {drawn / frames:.2f}, masks per frame {covered / frames:.2f}")


main()
