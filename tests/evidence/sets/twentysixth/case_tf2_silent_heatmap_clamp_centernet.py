"""
title: the focal loss of the heatmap is not finite in half precision despite the clamp of the sigmoid
expect: silent:precision-loss|downcast|overflow|underflow
thread: https://github.com/xingyizhou/CenterNet/issues/234
measured: largest logit 24 smallest -28 / validation hm loss inf
widened: largest logit 24 smallest -28 / validation hm loss 10.54; innocent: largest logit 24 smallest -28 / validation hm loss inf
suspect: 28 exact (a few dozen centres)

Expectation, written first: the clamp to 1 - 1e-4 is meant to keep log(1 - p) finite, but in float16 this bound rounds to 1.0,
so a confident wrong pixel still has 1 - p = 0 and log gives -inf. Remedy: float32 from the sigmoid on (or a bound that
float16 can hold). The count of centres in half is exact.
"""
import torch
from torch import nn


def _sigmoid(output):
    hm = torch.clamp(output.sigmoid(), min=1e-4, max=1 - 1e-4)  # BORN
    return hm


def _neg_loss(pred, gt):
    pos_inds = gt.eq(1).float()
    neg_inds = gt.lt(1).float()
    neg_weights = torch.pow(1 - gt, 4)
    pos_loss = torch.log(pred) * torch.pow(1 - pred, 2) * pos_inds
    neg_loss = torch.log(1 - pred) * torch.pow(pred, 2) * neg_weights * neg_inds  # BORN
    num_pos = pos_inds.half().sum()
    return -(pos_loss.float().sum() + neg_loss.float().sum()) / num_pos.float()


def draw_gaussian(heatmap, center, sigma):
    size = heatmap.shape[-1]
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    g = torch.exp(-((yy - center[0]) ** 2 + (xx - center[1]) ** 2) / (2 * sigma ** 2))
    return torch.maximum(heatmap, g)


class HeatmapHead(nn.Module):
    def __init__(self, channels, num_classes):
        super().__init__()
        self.conv = nn.Conv2d(channels, 16, 3, padding=1)
        self.hm = nn.Conv2d(16, num_classes, 1)
        self.hm.bias.data.fill_(-2.19)

    def forward(self, x):
        return self.hm(torch.relu(self.conv(x)))


class CtdetLoss:
    def __call__(self, output, batch):
        hm = _sigmoid(output)
        return _neg_loss(hm, batch["hm"])


def make_batch(generator, num_classes=3, size=32, n=4):
    hms = []
    for _ in range(n):
        hm = torch.zeros(num_classes, size, size)
        for c in range(num_classes):
            center = torch.randint(4, size - 4, (2,), generator=generator)
            hm[c] = draw_gaussian(hm[c], center.tolist(), sigma=2.0)
        hms.append(hm)
    feats = torch.randn(n, 8, size, size, generator=generator)
    feats[0, :, 3, 3] *= 150  # a hot pixel of the backbone
    return feats, {"hm": torch.stack(hms)}


@torch.no_grad()
def main():
    torch.manual_seed(234)
    head = HeatmapHead(8, 3)
    feats, batch = make_batch(torch.Generator().manual_seed(9))
    output = head.half()(feats.half())  # BORN
    loss = CtdetLoss()(output, batch)
    print(f"largest logit {output.max().item():.0f} smallest {output.min().item():.0f}")
    print(f"validation hm loss {loss.item():.2f}")


if __name__ == "__main__":
    main()
