"""
title: The accuracy of a batch without visible keypoints is an integer zero and cannot be averaged
expect: collision
thread: https://github.com/open-mmlab/mmpose/issues/2138
fix_at: the .mean() of parse_losses

Expectation, written first: keypoint_pck_accuracy returns the Python int 0 where no keypoint is visible.
torch.tensor of it is int64, so parse_losses, which takes the mean of all logged tensors, raises for Long.
Batches with a visible keypoint give a float and run.
"""
from collections import OrderedDict

import numpy as np
import torch
import torch.nn as nn


def keypoint_pck_accuracy(pred, gt, mask, thr, norm):
    dist = np.linalg.norm((pred - gt) / norm[:, None], axis=-1)
    dist[~mask] = -1
    acc = []
    for d in dist.T:
        valid = d != -1
        acc.append((d[valid] < thr).mean() if valid.any() else -1)
    valid_acc = [a for a in acc if a >= 0]
    cnt = len(valid_acc)
    avg_acc = sum(valid_acc) / cnt if cnt > 0 else 0  # BORN
    return np.array(acc), avg_acc, cnt


def get_heatmap_maximum(heatmaps):
    n, k, h, w = heatmaps.shape
    flat = heatmaps.reshape(n, k, -1).argmax(-1)
    return np.stack([flat % w, flat // w], axis=-1).astype(np.float32)


class HeatmapHead(nn.Module):
    def __init__(self, channels, num_keypoints):
        super().__init__()
        self.final_layer = nn.Conv2d(channels, num_keypoints, 1)

    def forward(self, feats):
        return self.final_layer(feats)

    def loss(self, feats, gt_heatmaps, weights):
        pred = self.forward(feats)
        losses = {"loss_kpt": ((pred - gt_heatmaps).pow(2) * weights[..., None, None]).mean()}
        h, w = pred.shape[-2:]
        _, avg_acc, _ = keypoint_pck_accuracy(
            get_heatmap_maximum(pred.detach().numpy()), get_heatmap_maximum(gt_heatmaps.numpy()),
            mask=weights.numpy() > 0, thr=0.5, norm=np.array([[h, w]] * len(pred)) / 10)
        acc_pose = torch.tensor(avg_acc, device=gt_heatmaps.device)  # BORN
        losses.update(acc_pose=acc_pose)
        return losses


def parse_losses(losses):
    log_vars = OrderedDict()
    for name, value in losses.items():
        log_vars[name] = value.mean()  # COLLIDES
    loss = sum(v for k, v in log_vars.items() if "loss" in k)
    return loss, log_vars


def main():
    torch.manual_seed(6)
    head = HeatmapHead(8, 4)
    optim = torch.optim.SGD(head.parameters(), lr=0.1)
    for it in range(4):
        weights = torch.ones(2, 4) if it < 3 else torch.zeros(2, 4)
        losses = head.loss(torch.randn(2, 8, 16, 12), torch.rand(2, 4, 16, 12), weights)
        loss, log_vars = parse_losses(losses)
        optim.zero_grad()
        loss.backward()
        optim.step()
        print(it, {k: round(v.item(), 4) for k, v in log_vars.items()})


if __name__ == "__main__":
    main()
