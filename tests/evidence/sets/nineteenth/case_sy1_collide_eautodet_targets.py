"""
title: build_targets: clamp_ of grid indices, result type Float can't be cast to long int
expect: collision
thread: https://github.com/vicFigure/EAutoDet/issues/5
fix_at: 49 (the grid sizes written into the float gain)

Expectation, written first: gain is torch.ones(7) in float32 because it scales the float targets; its entries 2 and 3 are then handed as the
upper bound to clamp_ on the int64 grid indices. An in-place op cannot turn its int64 self into float32, so torch refuses. The bounds must
be made integers at the clamp (or be taken from the shape).
"""
import torch
import torch.nn as nn


class ComputeLoss:
    def __init__(self, anchors, nc=4, anchor_t=4.0):
        self.anchors = anchors
        self.nl, self.na = anchors.shape[:2]
        self.nc = nc
        self.anchor_t = anchor_t
        self.bce_obj = nn.BCEWithLogitsLoss()
        self.bce_cls = nn.BCEWithLogitsLoss()

    def __call__(self, p, targets):
        lcls, lbox, lobj = torch.zeros(1), torch.zeros(1), torch.zeros(1)
        tcls, tbox, indices, anchors = self.build_targets(p, targets)
        for i, pi in enumerate(p):
            b, a, gj, gi = indices[i]
            tobj = torch.zeros_like(pi[..., 0])
            if b.shape[0]:
                ps = pi[b, a, gj, gi]
                pwh = (ps[:, 2:4].sigmoid() * 2) ** 2 * anchors[i]
                lbox = lbox + (torch.cat((ps[:, :2].sigmoid(), pwh), 1) - tbox[i]).abs().mean()
                tobj[b, a, gj, gi] = 1.0
                t = torch.zeros_like(ps[:, 5:])
                t[range(b.shape[0]), tcls[i]] = 1.0
                lcls = lcls + self.bce_cls(ps[:, 5:], t)
            lobj = lobj + self.bce_obj(pi[..., 4], tobj)
        return lbox * 0.05 + lobj + lcls * 0.5

    def build_targets(self, p, targets):
        na, nt = self.na, targets.shape[0]
        tcls, tbox, indices, anch = [], [], [], []
        gain = torch.ones(7, device=targets.device)  # BORN
        ai = torch.arange(na, device=targets.device).float().view(na, 1).repeat(1, nt)
        targets = torch.cat((targets.repeat(na, 1, 1), ai[:, :, None]), 2)
        for i in range(self.nl):
            anchors = self.anchors[i]
            gain[2:6] = torch.tensor(p[i].shape)[[3, 2, 3, 2]]
            t = targets * gain
            r = t[:, :, 4:6] / anchors[:, None]
            t = t[torch.max(r, 1.0 / r).max(2)[0] < self.anchor_t]
            b, c = t[:, :2].long().T
            gxy, gwh = t[:, 2:4], t[:, 4:6]
            gij = gxy.long()
            gi, gj = gij.T
            a = t[:, 6].long()
            indices.append((b, a, gj.clamp_(0, gain[3] - 1), gi.clamp_(0, gain[2] - 1)))  # BORN COLLIDES
            tbox.append(torch.cat((gxy - gij, gwh), 1))
            anch.append(anchors[a])
            tcls.append(c)
        return tcls, tbox, indices, anch


def main():
    torch.manual_seed(0)
    anchors = torch.tensor([[[1.2, 1.6], [2.0, 3.7], [4.1, 2.8]], [[1.9, 3.8], [3.9, 2.8], [3.7, 7.4]]])
    compute_loss = ComputeLoss(anchors)
    pred = [torch.randn(2, 3, s, s, 9, requires_grad=True) for s in (8, 4)]
    targets = torch.cat((torch.randint(0, 2, (6, 1)).float(), torch.randint(0, 4, (6, 1)).float(), torch.rand(6, 4) * 0.8 + 0.1), 1)
    loss = compute_loss(pred, targets)
    loss.backward()
    print("loss", loss.item())


if __name__ == "__main__":
    main()
