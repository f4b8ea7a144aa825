"""
title: a spatial transformer that crops digits, with features in bf16 and a float32 grid
expect: collision
thread: https://github.com/pytorch/pytorch/issues/42218
fix_at: 42

Expectation, written first: the localiser and the features are bf16 but its angles
are turned to float32 for the trigonometry, so the sampling grid is float32 and grid_sample
refuses (expected input and grid to have same dtype).
BORN is the cast of the pose to float32; keeping the pose in the feature dtype, or casting
the grid back, mends it.
"""
import torch
from torch import nn
from torch.nn import functional as F


class Localiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(256, 24), nn.Tanh(), nn.Linear(24, 3))

    def forward(self, x):
        return 0.5 * torch.tanh(self.net(x))


class SpatialCrop(nn.Module):
    def __init__(self, size=10):
        super().__init__()
        self.size = size
        self.localiser = Localiser()

    def theta(self, pose):
        angle, shift = pose[:, 0], pose[:, 1:]
        c, s = torch.cos(angle), torch.sin(angle)
        rot = torch.stack([torch.stack([c, -s], 1), torch.stack([s, c], 1)], 1)
        return torch.cat([0.7 * rot, shift.unsqueeze(-1)], dim=2)

    def forward(self, image):
        pose = self.localiser(image).float()  # BORN
        theta = self.theta(pose)
        grid = F.affine_grid(theta, [image.shape[0], 1, self.size, self.size], align_corners=False)
        return F.grid_sample(image, grid, align_corners=False)  # COLLIDES


class DigitNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.crop = SpatialCrop()
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(100, 10))

    def forward(self, image):
        return self.head(self.crop(image))


def main():
    torch.manual_seed(3)
    model = DigitNet().to(torch.bfloat16).eval()
    images = torch.zeros(6, 1, 16, 16)
    for i in range(6):
        images[i, 0, 4:12, 3 + i:6 + i] = 1.0
    with torch.no_grad():
        scores = model(images.to(torch.bfloat16))
    print("classes", scores.argmax(1).tolist())


if __name__ == "__main__":
    main()
