"""
title: a detector's build_targets keeps cell indices inside the grid with the gain tensor
expect: collision
thread: https://github.com/cv516Buaa/tph-yolov5/issues/48
fix_at: 49, 62

Expectation, written first: the gain is a float tensor because boxes are scaled with it; the cell indices are int64
and are clamped in place with an element of it, which torch refuses since a float result does not fit an int64 tensor.
"""
import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, classes, anchors, channels=(16, 32)):
        super().__init__()
        self.nc, self.no, self.na = classes, classes + 5, anchors.shape[1]
        self.register_buffer("anchors", anchors)
        self.m = nn.ModuleList(nn.Conv2d(c, self.no * self.na, 1) for c in channels)

    def forward(self, maps):
        out = []
        for conv, x in zip(self.m, maps):
            b, _, h, w = x.shape
            out.append(conv(x).view(b, self.na, self.no, h, w).permute(0, 1, 3, 4, 2).contiguous())
        return out


class ComputeLoss:
    def __init__(self, head, anchor_t=4.0):
        self.head, self.anchor_t = head, anchor_t
        self.bce = nn.BCEWithLogitsLoss()

    def __call__(self, preds, targets):
        tbox, indices = self.build_targets(preds, targets)
        lbox = lobj = torch.zeros(1)
        for p, box, (b, a, gj, gi) in zip(preds, tbox, indices):
            tobj = torch.zeros_like(p[..., 0])
            if b.shape[0]:
                ps = p[b, a, gj, gi]
                lbox = lbox + (ps[:, :4].sigmoid() - box).abs().mean()
                tobj[b, a, gj, gi] = 1.0
            lobj = lobj + self.bce(p[..., 4], tobj)
        return 0.05 * lbox + lobj

    def build_targets(self, preds, targets):
        na, nt = self.head.na, targets.shape[0]
        tbox, indices = [], []
        gain = torch.ones(7)  # BORN
        ai = torch.arange(na).float().view(na, 1).repeat(1, nt)
        targets = torch.cat((targets.repeat(na, 1, 1), ai[:, :, None]), 2)
        for i, p in enumerate(preds):
            anchors = self.head.anchors[i]
            gain[2:6] = torch.tensor(p.shape)[[3, 2, 3, 2]]
            t = targets * gain
            r = t[:, :, 4:6] / anchors[:, None]
            t = t[torch.max(r, 1 / r).amax(2) < self.anchor_t]
            b = t[:, 0].long()
            gxy, gwh, a = t[:, 2:4], t[:, 4:6], t[:, 6].long()
            gij = gxy.long()
            gi, gj = gij.T
            indices.append((b, a, gj.clamp_(0, gain[3] - 1), gi.clamp_(0, gain[2] - 1)))  # COLLIDES
            tbox.append(torch.cat((gxy - gij, gwh), 1))
        return tbox, indices


def batch(gen, images=4, objects=12):
    boxes = torch.rand(objects, 4, generator=gen) * 0.3 + 0.2
    owner = torch.randint(images, (objects, 1), generator=gen).float()
    return torch.cat((owner, torch.zeros(objects, 1), boxes), 1)


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    anchors = torch.tensor([[[2.0, 2.0], [4.0, 4.0]], [[1.0, 1.0], [2.0, 2.0]]])
    head = Head(3, anchors)
    criterion = ComputeLoss(head)
    opt = torch.optim.SGD(head.parameters(), lr=0.05)
    for _ in range(3):
        maps = [torch.randn(4, 16, 16, 16, generator=gen), torch.randn(4, 32, 8, 8, generator=gen)]
        loss = criterion(head(maps), batch(gen))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss {loss.item():.4f}")


main()
