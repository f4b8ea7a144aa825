"""
title: the grid indices of detection targets are clamped in place by a float gain
expect: collision
thread: https://github.com/AlibabaResearch/efficientteacher/issues/142
fix_at: 56, 68

Expectation, written first: the gain that scales the targets to the grid is a float tensor; clamp_ with its elements
would have to put a float result into the int64 indices and is refused.
"""
from argparse import Namespace

import torch
import torch.nn.functional as F
from torch import nn


class Detect(nn.Module):
    stride = (8, 16)

    def __init__(self, nc, anchors):
        super().__init__()
        self.nc, self.no, self.na = nc, nc + 5, anchors.shape[1]
        self.register_buffer("anchors", anchors / torch.tensor(self.stride).view(-1, 1, 1))
        self.stem = nn.Conv2d(3, 16, 8, stride=8)
        self.down = nn.Conv2d(16, 16, 3, stride=2, padding=1)
        self.heads = nn.ModuleList(nn.Conv2d(16, self.no * self.na, 1) for _ in self.stride)

    def forward(self, x):
        p3 = F.silu(self.stem(x))
        outs = [head(p) for head, p in zip(self.heads, (p3, F.silu(self.down(p3))))]
        return [o.unflatten(1, (self.na, self.no)).permute(0, 1, 3, 4, 2) for o in outs]


class ComputeLoss:
    def __init__(self, model, hyp):
        self.det, self.hyp = model, hyp

    def __call__(self, preds, targets):
        tcls, tbox, indices, anchors = self.build_targets(preds, targets)
        lbox = lcls = lobj = torch.zeros(())
        for i, pi in enumerate(preds):
            b, a, gj, gi = indices[i]
            tobj = torch.zeros(pi.shape[:4])
            if len(b):
                ps = pi[b, a, gj, gi]
                pxy, pwh = ps[:, :2].sigmoid() * 2 - 0.5, (ps[:, 2:4].sigmoid() * 2) ** 2 * anchors[i]
                lbox = lbox + F.smooth_l1_loss(torch.cat([pxy, pwh], 1), tbox[i])
                lcls = lcls + F.binary_cross_entropy_with_logits(ps[:, 5:], F.one_hot(tcls[i], self.det.nc).float())
                tobj[b, a, gj, gi] = 1.0
            lobj = lobj + F.binary_cross_entropy_with_logits(pi[..., 4], tobj)
        return self.hyp["box"] * lbox + self.hyp["obj"] * lobj + self.hyp["cls"] * lcls

    def build_targets(self, preds, targets):
        na, nt = self.det.na, len(targets)
        tcls, tbox, indices, anch = [], [], [], []
        gain = torch.ones(7)  # BORN
        ai = torch.arange(na).float().view(na, 1).repeat(1, nt)
        targets = torch.cat([targets.repeat(na, 1, 1), ai[..., None]], 2)
        for i, anchors in enumerate(self.det.anchors):
            gain[2:6] = torch.tensor(preds[i].shape)[[3, 2, 3, 2]]
            t = targets * gain
            r = t[..., 4:6] / anchors[:, None]
            t = t[torch.max(r, 1 / r).max(2)[0] < self.hyp["anchor_t"]]
            b, c = t[:, :2].long().T
            gxy, gwh, a = t[:, 2:4], t[:, 4:6], t[:, 6].long()
            gij = gxy.long()
            gi, gj = gij.T
            indices.append((b, a, gj.clamp_(0, gain[3] - 1), gi.clamp_(0, gain[2] - 1)))  # COLLIDES
            tbox.append(torch.cat((gxy - gij, gwh), 1))
            anch.append(anchors[a])
            tcls.append(c)
        return tcls, tbox, indices, anch


class BoxesDataset(torch.utils.data.Dataset):
    def __init__(self, n, size, nc):
        self.n, self.size, self.nc = n, size, nc

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        xy, wh = 0.2 + 0.6 * torch.rand(3, 2, generator=g), 0.1 + 0.3 * torch.rand(3, 2, generator=g)
        cls = torch.randint(0, self.nc, (3, 1), generator=g).float()
        return torch.rand(3, self.size, self.size, generator=g), torch.cat([torch.zeros(3, 1), cls, xy, wh], 1)

    @staticmethod
    def collate_fn(batch):
        images, labels = zip(*batch)
        for i, label in enumerate(labels):
            label[:, 0] = i
        return torch.stack(images), torch.cat(labels)


def train(opt):
    torch.manual_seed(0)
    anchors = torch.tensor([[[10.0, 13], [16, 20]], [[24, 20], [30, 36]]])
    model = Detect(opt.nc, anchors)
    compute_loss, optimizer = ComputeLoss(model, opt.hyp), torch.optim.SGD(model.parameters(), lr=opt.lr)
    data = BoxesDataset(4, opt.img_size, opt.nc)
    for images, targets in torch.utils.data.DataLoader(data, opt.batch_size, collate_fn=data.collate_fn):
        loss = compute_loss(model(images), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


print(f"loss {train(Namespace(nc=3, img_size=64, lr=0.01, batch_size=2, hyp=dict(box=0.05, obj=1.0, cls=0.5, anchor_t=4.0))):.2f}")
