"""
title: box centres are floored to grid cells, not rounded
expect: clean
thread: https://github.com/open-mmlab/mmdetection/issues/4328
measured: stride 32 cells 23 mean offset 0.500 decode error 0.00 / stride 16 cells 24 mean offset 0.500 decode error 0.00 / stride 8 cells 24 mean offset 0.521 decode error 0.00
suspect: 21 meant (the cell that holds the centre is wanted, the remainder is kept by the coder)

Expectation, written first: flooring the centre picks the responsible cell, and the coder stores the remainder in (0, 1) as
float, so that encode and decode are inverse. The cast to int64 loses nothing that is not kept elsewhere; the decoded
boxes agree to two decimals.
"""
import torch


class YOLOAnchorGenerator:
    def __init__(self, strides, base_sizes):
        self.strides = strides
        self.base_sizes = base_sizes

    def responsible_indices(self, centers, stride):
        return torch.floor(centers / stride).long()

    def grid_anchors(self, feat_size, stride, base_size):
        y, x = torch.meshgrid(torch.arange(feat_size), torch.arange(feat_size), indexing="ij")
        centers = (torch.stack([x, y], dim=-1).view(-1, 2).float() + 0.5) * stride
        half = torch.tensor(base_size) / 2
        return torch.cat([centers - half, centers + half], dim=-1)

    def responsible_flags(self, feat_size, gt_bboxes, stride):
        centers = (gt_bboxes[:, :2] + gt_bboxes[:, 2:]) / 2
        cell = self.responsible_indices(centers, stride)
        index = cell[:, 1] * feat_size + cell[:, 0]
        flags = torch.zeros(feat_size * feat_size, dtype=torch.uint8)
        flags[index] = 1
        return flags, index


class YOLOBBoxCoder:
    eps = 1e-6

    def encode(self, anchors, gt, stride):
        a_center, a_size = (anchors[:, :2] + anchors[:, 2:]) / 2, anchors[:, 2:] - anchors[:, :2]
        g_center, g_size = (gt[:, :2] + gt[:, 2:]) / 2, gt[:, 2:] - gt[:, :2]
        xy = ((g_center - a_center) / stride + 0.5).clamp(self.eps, 1 - self.eps)
        return torch.cat([xy, torch.log(g_size / a_size)], dim=-1)

    def decode(self, anchors, pred, stride):
        a_center, a_size = (anchors[:, :2] + anchors[:, 2:]) / 2, anchors[:, 2:] - anchors[:, :2]
        center = (pred[:, :2] - 0.5) * stride + a_center
        half = a_size * pred[:, 2:].exp() / 2
        return torch.cat([center - half, center + half], dim=-1)


def make_gt(n, image, generator):
    center = 40 + (image - 80) * torch.rand(n, 2, generator=generator)
    half = 5 + 25 * torch.rand(n, 2, generator=generator)
    return torch.cat([center - half, center + half], dim=-1)


def main():
    generator = torch.Generator().manual_seed(4328)
    anchors_of = YOLOAnchorGenerator(strides=[32, 16, 8], base_sizes=[(116.0, 90.0), (30.0, 61.0), (10.0, 13.0)])
    gt = make_gt(24, image=416, generator=generator)
    coder = YOLOBBoxCoder()
    for stride, base_size in zip(anchors_of.strides, anchors_of.base_sizes):
        feat = 416 // stride
        flags, index = anchors_of.responsible_flags(feat, gt, stride)
        anchors = anchors_of.grid_anchors(feat, stride, base_size)[index]
        target = coder.encode(anchors, gt, stride)
        error = (coder.decode(anchors, target, stride) - gt).abs().max().item()
        print(f"stride {stride} cells {int(flags.sum())} mean offset {target[:, :2].mean():.3f} decode error {error:.2f}")


if __name__ == "__main__":
    main()
