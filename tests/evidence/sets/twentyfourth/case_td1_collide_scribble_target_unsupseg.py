"""
title: Scribble labels stay int32 and the cross entropy wants Long
expect: collision
thread: https://github.com/kanezaki/pytorch-unsupervised-segmentation-tip/issues/4
fix_at: (none beside the marked)

Expectation, written first: The scribble mask is cast to int32 in NumPy and from_numpy keeps that. The
target of the similarity loss comes from argmax and is int64, so the first loss runs; the scribble loss
gets Int labels and raises.
"""
import numpy as np
import torch
import torch.nn as nn


class MyNet(nn.Module):
    def __init__(self, input_dim, n_channel=16, n_conv=2):
        super().__init__()
        self.conv1 = nn.Conv2d(input_dim, n_channel, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(n_channel)
        self.conv2 = nn.ModuleList(nn.Conv2d(n_channel, n_channel, 3, padding=1) for _ in range(n_conv - 1))
        self.bn2 = nn.ModuleList(nn.BatchNorm2d(n_channel) for _ in range(n_conv - 1))
        self.conv3 = nn.Conv2d(n_channel, n_channel, 1)
        self.bn3 = nn.BatchNorm2d(n_channel)

    def forward(self, x):
        x = self.bn1(torch.relu(self.conv1(x)))
        for conv, bn in zip(self.conv2, self.bn2):
            x = bn(torch.relu(conv(x)))
        return self.bn3(self.conv3(x))


def load_scribble(height, width):
    mask = np.full((height, width), 255, dtype=np.uint8)
    mask[2:5, 2:12] = 0
    mask[12:15, 4:20] = 1
    mask[18:20, 10:22] = 2
    return mask


def main():
    torch.manual_seed(8)
    rng = np.random.default_rng(8)
    im = rng.random((24, 24, 3), dtype=np.float32)
    data = torch.from_numpy(im.transpose(2, 0, 1)[None])

    mask = load_scribble(24, 24).reshape(-1)
    inds_sim = torch.from_numpy(np.where(mask == 255)[0])
    inds_scr = torch.from_numpy(np.where(mask != 255)[0])
    target_scr = torch.from_numpy(mask.astype(np.int32))  # BORN

    model = MyNet(data.size(1))
    model.train()
    loss_fn = nn.CrossEntropyLoss()
    loss_fn_scr = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    stepsize_sim, stepsize_scr = 1.0, 0.5
    for batch_idx in range(5):
        optimizer.zero_grad()
        output = model(data)[0]
        output = output.permute(1, 2, 0).contiguous().view(-1, 16)
        target = output.argmax(dim=1)
        n_labels = len(torch.unique(target))
        sim = loss_fn(output[inds_sim], target[inds_sim])
        scr = loss_fn_scr(output[inds_scr], target_scr[inds_scr])  # BORN COLLIDES
        loss = stepsize_sim * sim + stepsize_scr * scr
        loss.backward()
        optimizer.step()
        print(batch_idx, "| label num:", n_labels, "| loss:", round(loss.item(), 4))


if __name__ == "__main__":
    main()
