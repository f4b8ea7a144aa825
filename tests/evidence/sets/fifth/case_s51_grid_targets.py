"""
title: the gain that scales targets to the grid is a float tensor, integer cell indices are clamped with it in place
expect: collision
fix_at: 50

After https://github.com/ultralytics/yolov5/issues/8314 and https://github.com/cv516Buaa/tph-yolov5/issues/48.
Right: the grid's sizes are integers.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(111)


class Detector(nn.Module):
    def __init__(self, classes=3, anchors=2):
        super().__init__()
        self.classes, self.anchors = classes, anchors
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 4, 1), nn.SiLU())
        self.down = nn.Sequential(nn.Conv2d(16, 16, 3, 2, 1), nn.SiLU())
        self.heads = nn.ModuleList(nn.Conv2d(16, anchors * (5 + classes), 1) for _ in range(2))

    def forward(self, images):
        fine = self.stem(images)
        maps = [head(x) for head, x in zip(self.heads, (fine, self.down(fine)))]
        return [m.view(m.shape[0], self.anchors, -1, *m.shape[2:]).permute(0, 1, 3, 4, 2) for m in maps]


class Loss:
    def __init__(self, anchors):
        self.anchors = anchors
        self.gain = torch.ones(6)  # BORN
        self.nudges = 0.5 * torch.tensor([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1]]).float()

    def assign(self, maps, targets):
        """Which cell of which level answers for which box (image, class, x, y, w, h, in units of the image)."""
        assigned = []
        for level, m in enumerate(maps):
            height, width = m.shape[2:4]
            self.gain[2:] = torch.tensor([width, height, width, height])
            scaled = targets * self.gain
            ratio = scaled[:, None, 4:6] / self.anchors[level][None]
            which, anchor = (torch.maximum(ratio, 1 / ratio).amax(-1) < 4).nonzero(as_tuple=True)
            chosen = scaled[which]
            cells = (chosen[:, 2:4] + self.nudges[0]).long()
            column, row = cells.unbind(1)
            image, label = chosen[:, :2].long().unbind(1)
            column.clamp_(0, self.gain[2] - 1)  # COLLIDES
            row.clamp_(0, self.gain[3] - 1)
            assigned.append((image, anchor, row, column, label, chosen[:, 2:]))
        return assigned

    def __call__(self, maps, targets):
        total = torch.zeros(())
        for m, (image, anchor, row, column, label, box) in zip(maps, self.assign(maps, targets)):
            found = torch.zeros_like(m[..., 4])
            if len(image):
                found[image, anchor, row, column] = 1.0
                picked = m[image, anchor, row, column]
                total = total + F.cross_entropy(picked[:, 5:], label) + F.smooth_l1_loss(picked[:, 2:4].exp(), box[:, 2:])
            total = total + F.binary_cross_entropy_with_logits(m[..., 4], found)
        return total


def batch(size=2, boxes=5):
    image = torch.randint(0, size, (boxes, 1)).float()
    label = torch.randint(0, 3, (boxes, 1)).float()
    return torch.rand(size, 3, 64, 64), torch.cat([image, label, torch.rand(boxes, 2), 0.1 + 0.3 * torch.rand(boxes, 2)], dim=1)


model = Detector()
criterion = Loss([torch.tensor([[2.0, 2.0], [4.0, 4.0]]), torch.tensor([[1.5, 1.5], [3.0, 3.0]])])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
for step in range(3):
    images, targets = batch()
    loss = criterion(model(images), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 4))
