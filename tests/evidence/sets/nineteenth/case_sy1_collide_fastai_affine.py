"""
title: batch augmentation with to_fp16: grid_sampler expected input and grid to have same dtype
expect: collision
thread: https://github.com/walkwithfastai/walkwithfastai.github.io/issues/25
fix_at: 33 (the identity rows, if the matrix takes the images' dtype)

Expectation, written first: the learner's half-precision callback casts the batch to float16 before the batch transforms run, and the affine
transform builds its matrix from torch.eye and uniform draws in float32, so the grid is float32 while the images are float16. grid_sample
refuses the pair. The grid must be cast to the images' dtype at the call, the matrix must be built in it, or the cast must come after the
transforms.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class AffineCoordTfm:
    def __init__(self, max_rotate=10.0, max_zoom=1.1, p=0.75):
        self.max_rotate, self.max_zoom, self.p = max_rotate, max_zoom, p

    def before_call(self, x):
        bs = x.size(0)
        apply = torch.rand(bs) < self.p
        angle = (torch.rand(bs) * 2 - 1) * self.max_rotate * math.pi / 180
        zoom = 1 + torch.rand(bs) * (self.max_zoom - 1)
        mat = torch.eye(2, 3).repeat(bs, 1, 1)  # BORN
        mat[:, 0, 0] = torch.cos(angle) / zoom
        mat[:, 0, 1] = -torch.sin(angle)
        mat[:, 1, 0] = torch.sin(angle)
        mat[:, 1, 1] = torch.cos(angle) / zoom
        mat[~apply] = torch.eye(2, 3)
        self.mat = mat

    def __call__(self, x):
        self.before_call(x)
        grid = F.affine_grid(self.mat, x.shape, align_corners=True)  # BORN
        return F.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=True)  # BORN COLLIDES


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = mean.view(1, -1, 1, 1), std.view(1, -1, 1, 1)

    def __call__(self, x):
        return (x - self.mean.to(x.dtype)) / self.std.to(x.dtype)


class Learner:
    def __init__(self, model, batch_tfms, loss_func, lr):
        self.model, self.batch_tfms, self.loss_func = model, batch_tfms, loss_func
        self.opt = torch.optim.SGD(model.parameters(), lr=lr)
        self.half = False

    def to_fp16(self):
        self.half = True
        return self

    def one_batch(self, xb, yb):
        if self.half:
            xb = xb.half()  # BORN
        for tfm in self.batch_tfms:
            xb = tfm(xb)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.half):
            loss = self.loss_func(self.model(xb.float()), yb)
        loss.backward()
        self.opt.step()
        self.opt.zero_grad()
        return loss.item()


def main():
    torch.manual_seed(42)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    tfms = [AffineCoordTfm(), Normalize(torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225]))]
    learn = Learner(model, tfms, F.cross_entropy, lr=0.05).to_fp16()
    for epoch in range(2):
        loss = learn.one_batch(torch.rand(4, 3, 16, 16), torch.randint(0, 5, (4,)))
        print(epoch, round(loss, 4))


if __name__ == "__main__":
    main()
