"""
title: a Boxes structure turns float32 when it is moved, and the pooler gets float32 boxes with half features
expect: collision
thread: https://github.com/facebookresearch/detectron2/issues/782
fix_at: 19, 24, 44, 50, 52, 64

Expectation, written first: the proposals are cast to bfloat16 on purpose, and to() rebuilds the structure through the
constructor, which forces float32; the sampling of the bfloat16 feature map refuses the grid. Cause: the constructor's
as_tensor with float32, or to(), which goes through it.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Boxes:
    def __init__(self, tensor):
        device = tensor.device if isinstance(tensor, torch.Tensor) else torch.device("cpu")
        tensor = torch.as_tensor(tensor, dtype=torch.float32, device=device)  # BORN
        assert tensor.dim() == 2 and tensor.size(-1) == 4
        self.tensor = tensor

    def to(self, device):
        return Boxes(self.tensor.to(device))  # BORN

    def astype(self, dtype):
        self.tensor = self.tensor.to(dtype)
        return self

    def clip(self, size):
        h, w = size
        x0, y0, x1, y1 = self.tensor.unbind(-1)
        self.tensor = torch.stack((x0.clamp(0, w), y0.clamp(0, h), x1.clamp(0, w), y1.clamp(0, h)), dim=-1)
        return self


class ROIPooler(nn.Module):
    def __init__(self, out, stride):
        super().__init__()
        self.out, self.stride = out, stride

    def forward(self, features, boxes):
        h, w = features.shape[-2:]
        b = boxes.tensor / self.stride
        ticks = (torch.arange(self.out, dtype=b.dtype) + 0.5) / self.out
        xs = b[:, 0:1] + (b[:, 2:3] - b[:, 0:1]) * ticks
        ys = b[:, 1:2] + (b[:, 3:4] - b[:, 1:2]) * ticks
        grid_x = (2 * xs / w - 1)[:, None, :].expand(-1, self.out, -1)
        grid_y = (2 * ys / h - 1)[:, :, None].expand(-1, -1, self.out)
        grid = torch.stack((grid_x, grid_y), dim=-1)
        maps = features.expand(len(b), -1, -1, -1)
        return F.grid_sample(maps, grid, align_corners=False)  # COLLIDES


class Detector(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU())
        self.pooler = ROIPooler(out=3, stride=4)
        self.head = nn.Linear(16 * 9, classes)

    def forward(self, image, proposals):
        features = self.backbone(image)
        proposals = proposals.to(features.device)
        pooled = self.pooler(features, proposals.clip(image.shape[-2:]))
        return self.head(pooled.flatten(1))


@torch.no_grad()
def main():
    torch.manual_seed(2)
    dtype = torch.bfloat16
    detector = Detector().to(dtype).eval()
    corner = torch.rand(6, 2) * 30
    proposals = Boxes(torch.cat([corner, corner + 8 + torch.rand(6, 2) * 20], dim=1)).astype(dtype)
    scores = detector(torch.rand(1, 3, 48, 48).to(dtype), proposals).softmax(-1)
    print(tuple(scores.shape), scores.float().sum(-1).round().tolist())


main()
