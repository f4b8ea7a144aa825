"""
title: text masks are uint8 and one minus the target is taken in uint8 for hard-negative mining
expect: clean
thread: https://github.com/princevandev/TextSnake.pytorch/issues/47
measured: positives 1608, negatives 4824 ; text region 0.8961 (in int64 0.8961), center line 0.6733
suspect: 57 exact (targets and masks are ones and zeros, made boolean before they index)

Expectation, written first: the maps are uint8 and 1 - target times the training mask stays zero or one; the product is made boolean before it indexes
and its sum, far above 255, is an int64. Three negatives per positive are mined from float32 losses. The same numbers come out with booleans.
"""
import torch
import torch.nn.functional as F
from torch import nn


class TextLoss(nn.Module):
    def __init__(self, negative_ratio=3.0):
        super().__init__()
        self.negative_ratio = negative_ratio

    def ohem(self, predict, target, train_mask):
        pos = (target * train_mask).bool()
        neg = ((1 - target) * train_mask).bool()
        n_pos = (target * train_mask).sum()
        loss_pos = F.cross_entropy(predict[pos], target[pos].long(), reduction="sum")
        loss_neg = F.cross_entropy(predict[neg], target[neg].long(), reduction="none")
        n_neg = min(int(neg.sum()), int(self.negative_ratio * n_pos))
        loss_neg = loss_neg.topk(n_neg).values
        return (loss_pos + loss_neg.sum()) / (n_pos + n_neg), int(n_pos), n_neg

    def forward(self, logits, tr_mask, tcl_mask, train_mask):
        tr_pred = logits[:, :2].permute(0, 2, 3, 1).reshape(-1, 2)
        tcl_pred = logits[:, 2:].permute(0, 2, 3, 1).reshape(-1, 2)
        tr, tcl, train = tr_mask.flatten(), tcl_mask.flatten(), train_mask.flatten()
        loss_tr, n_pos, n_neg = self.ohem(tr_pred, tr, train)
        inside = (train * tr).bool()
        loss_tcl = F.cross_entropy(tcl_pred[inside], tcl[inside].long())
        return loss_tr, loss_tcl, n_pos, n_neg


class TextNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.out = nn.Conv2d(8, 4, 1)

    def forward(self, x):
        return self.out(torch.relu(self.conv(x)))


class SynthText(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        tr = torch.zeros(48, 48, dtype=torch.uint8)
        tcl = torch.zeros_like(tr)
        tr[10:22, 5 + i:40] = 1
        tcl[14:18, 7 + i:38] = 1
        train = torch.ones_like(tr)
        train[40:] = 0
        image = torch.rand(3, 48, 48, generator=g) + tr.float()
        return image, tr, tcl, train


def main():
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(SynthText(), batch_size=4)
    model, criterion = TextNet(), TextLoss()
    image, tr, tcl, train = next(iter(loader))
    loss_tr, loss_tcl, n_pos, n_neg = criterion(model(image), tr, tcl, train)
    (loss_tr + loss_tcl).backward()
    want = criterion.ohem(model(image)[:, :2].permute(0, 2, 3, 1).reshape(-1, 2), tr.flatten().long(), train.flatten().long())[0]
    print(f"positives {n_pos}, negatives {n_neg}")
    print(f"text region {loss_tr.item():.4f} (in int64 {want.item():.4f}), center line {loss_tcl.item():.4f}")


main()
