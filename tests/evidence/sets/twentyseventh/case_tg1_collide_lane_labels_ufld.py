"""
title: Lane grid labels of 32 bits reach the focal loss
expect: collision
thread: https://github.com/cfzd/Ultra-Fast-Lane-Detection/issues/127
fix_at: labels.long() in the loss would do too

Expectation, written first: the dataset turns the lane points into grid cells with astype to a 32-bit integer
(what int means on the reporter's Windows). The default collate keeps int32, and the 2D nll_loss of the
focal loss takes only Long or Byte targets, so the first training step raises.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

GRIDING_NUM, ROW_ANCHOR, NUM_LANES = 20, 12, 4


class SoftmaxFocalLoss(nn.Module):
    def __init__(self, gamma, ignore_lb=255):
        super().__init__()
        self.gamma = gamma
        self.nll = nn.NLLLoss(ignore_index=ignore_lb)

    def forward(self, logits, labels):
        scores = F.softmax(logits, dim=1)
        factor = torch.pow(1.0 - scores, self.gamma)
        log_score = factor * F.log_softmax(logits, dim=1)
        return self.nll(log_score, labels)  # COLLIDES


class ParsingRelationLoss(nn.Module):
    def forward(self, logits):
        loss_all = logits[:, :, :-1, :] - logits[:, :, 1:, :]
        return F.smooth_l1_loss(loss_all, torch.zeros_like(loss_all))


class LaneClsDataset(Dataset):
    def __init__(self, n, width=800):
        self.rng = np.random.default_rng(127)
        self.width = width
        self.items = [(self.rng.normal(size=(3, 24, 40)), self.rng.uniform(-60, width, size=(ROW_ANCHOR, NUM_LANES)))
                      for _ in range(n)]

    def __len__(self):
        return len(self.items)

    def _grid_pts(self, pts, num_cols, w):
        col_sample = np.linspace(0, w - 1, num_cols)
        cell = col_sample[1] - col_sample[0]
        to_pts = np.where(pts < 0, num_cols, pts // cell)
        return to_pts.astype(np.int32)  # BORN

    def __getitem__(self, index):
        img, lane_pts = self.items[index]
        cls_label = self._grid_pts(lane_pts, GRIDING_NUM, self.width)
        return torch.from_numpy(img).float(), torch.from_numpy(cls_label)  # BORN


class ParsingNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(),
                                   nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.ReLU())
        self.cls = nn.Linear(8 * 6 * 10, (GRIDING_NUM + 1) * ROW_ANCHOR * NUM_LANES)

    def forward(self, x):
        fea = self.model(x).flatten(1)
        return self.cls(fea).view(-1, GRIDING_NUM + 1, ROW_ANCHOR, NUM_LANES)


def train(net, loader, optimizer):
    loss_dict = {"op": [SoftmaxFocalLoss(2), ParsingRelationLoss()], "weight": [1.0, 0.1]}
    for b_idx, (img, cls_label) in enumerate(loader):
        cls_out = net(img)
        loss = loss_dict["weight"][0] * loss_dict["op"][0](cls_out, cls_label)
        loss = loss + loss_dict["weight"][1] * loss_dict["op"][1](cls_out)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("step", b_idx, "loss", round(loss.item(), 4))


if __name__ == "__main__":
    torch.manual_seed(0)
    net = ParsingNet()
    train(net, DataLoader(LaneClsDataset(12), batch_size=4), torch.optim.Adam(net.parameters(), lr=4e-4))
