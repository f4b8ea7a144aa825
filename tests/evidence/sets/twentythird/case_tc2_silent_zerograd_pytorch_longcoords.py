"""
title: the predicted offsets are cast to long for the lookup, the offset head gets no gradient
expect: silent:zero-gradient|round-trip|downcast
thread: https://github.com/pytorch/pytorch/issues/91431
measured: class accuracy 0.99 | mean pixel error 8.50 | coordinate head moved by 0.0000
widened: class accuracy 0.95 | mean pixel error 0.65 | coordinate head moved by 1.0794
innocent: class accuracy 0.99 | mean pixel error 8.50 | coordinate head moved by 0.0000
suspect: line 50, pixel targets below 32 are exact in int16 and need no gradient

Expectation, written first: the head predicts float coordinates, the loss wants pixel positions and the code casts them to long and back to
float. The cast cuts the graph, so the coordinate loss has no path to the head; the class loss keeps training and the total falls a
little, but the localisation error stays where it was. Without the cast the head learns. The integer targets are harmless.
"""
import torch
from torch import nn
import torch.nn.functional as F


class KeypointNet(nn.Module):
    def __init__(self, size=32, classes=4):
        super().__init__()
        self.size = size
        self.trunk = nn.Sequential(nn.Linear(size * 2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.cls = nn.Linear(64, classes)
        self.coord = nn.Linear(64, 2)

    def forward(self, x):
        h = self.trunk(x)
        xy = (torch.sigmoid(self.coord(h)) * (self.size - 1)).clamp(0, self.size - 1)
        return self.cls(h), xy


class PositionLoss(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, xy, target):
        pos = xy.long()  # BORN
        return F.smooth_l1_loss(pos.float() / self.size, target.float() / self.size)


def make_batch(n, size, g):
    xy = torch.randint(0, size, (n, 2), generator=g)
    label = torch.randint(0, 4, (n,), generator=g)
    grid = torch.arange(size)
    sharp = 3.0 + label[:, None].float()
    px = torch.exp(-(grid - xy[:, :1]).float() ** 2 / sharp)
    py = torch.exp(-(grid - xy[:, 1:]).float() ** 2 / sharp)
    return torch.cat([px, py], 1), label, xy.to(torch.int16)


def train(steps=250, size=32):
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(4)
    net = KeypointNet(size)
    opt = torch.optim.Adam([p for p in net.parameters()], lr=4e-3)
    crit = PositionLoss(size)
    start = net.coord.weight.detach().clone()
    for _ in range(steps):
        x, label, xy = make_batch(64, size, g)
        logits, pred = net(x)
        loss = F.cross_entropy(logits, label) + 20.0 * crit(pred, xy)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return net, start, g


net, start, g = train()
x, label, xy = make_batch(256, 32, g)
with torch.no_grad():
    logits, pred = net(x)
print("class accuracy %.2f" % (logits.argmax(-1) == label).float().mean())
print("mean pixel error %.2f" % (pred - xy.float()).abs().mean())
print("coordinate head moved by %.4f" % (net.coord.weight - start).norm().item())
