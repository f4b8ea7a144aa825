"""
title: One minus a comparison mask in the keypoint position loss
expect: collision
thread: https://github.com/Banconxuan/RTM3D/issues/48
fix_at: (none beside the marked)

Expectation, written first: The visibility mask is a comparison, which has given bool tensors since torch
1.2. The loss inverts it with 1 - mask, which torch does not allow for bool and raises.
"""
import torch
import torch.nn as nn


def _transpose_and_gather_feat(feat, ind):
    feat = feat.permute(0, 2, 3, 1).contiguous()
    feat = feat.view(feat.size(0), -1, feat.size(3))
    ind = ind.unsqueeze(2).expand(ind.size(0), ind.size(1), feat.size(2))
    return feat.gather(1, ind)


class PositionLoss(nn.Module):
    def __init__(self, num_kps=9, penalty=0.1):
        super().__init__()
        self.num_kps = num_kps
        self.penalty = penalty

    def forward(self, hps, batch):
        pred = _transpose_and_gather_feat(hps, batch["ind"])
        b, n, _ = pred.shape
        pred = pred.view(b, n, self.num_kps, 2)
        target = batch["hps"].view(b, n, self.num_kps, 2)
        visible = batch["hps_mask"].view(b, n, self.num_kps, 2).gt(0)  # BORN
        hidden = 1 - visible  # BORN COLLIDES
        err = (pred - target).abs()
        loss = (err * visible).sum() / (visible.sum() + 1e-4)
        reg = (pred.pow(2) * hidden).sum() / (hidden.sum() + 1e-4)
        return loss + self.penalty * reg


class Head(nn.Module):
    def __init__(self, num_kps=9):
        super().__init__()
        self.base = nn.Conv2d(3, 16, 3, stride=4, padding=1)
        self.hm = nn.Conv2d(16, 3, 1)
        self.hps = nn.Conv2d(16, num_kps * 2, 1)

    def forward(self, images):
        x = torch.relu(self.base(images))
        return {"hm": self.hm(x).sigmoid(), "hps": self.hps(x)}


class ModelWithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.pos_loss = PositionLoss()

    def forward(self, batch):
        out = self.model(batch["input"])
        hm_loss = (out["hm"] - batch["hm"]).pow(2).mean()
        coor_loss = self.pos_loss(out["hps"], batch)
        return hm_loss + coor_loss, {"hm_loss": hm_loss.item(), "coor_loss": coor_loss.item()}


def main():
    torch.manual_seed(4)
    model_with_loss = ModelWithLoss(Head())
    opt = torch.optim.Adam(model_with_loss.parameters(), lr=1.25e-4)
    for it in range(3):
        batch = {"input": torch.rand(2, 3, 32, 32), "hm": torch.rand(2, 3, 8, 8),
                 "ind": torch.randint(0, 64, (2, 5)), "hps": torch.randn(2, 5, 18),
                 "hps_mask": torch.randint(0, 2, (2, 5, 18)).float()}
        loss, stats = model_with_loss(batch)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(it, stats)


if __name__ == "__main__":
    main()
