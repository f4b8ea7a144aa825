"""
title: the loss scaler starts too high, skips a few steps and trains on
expect: clean
thread: https://github.com/traveller59/second.pytorch/issues/253
measured: skipped steps 6, first skip gone after step 20: True | loss 0.85 -> 0.08 | all weights finite True
suspect: line 35, the scaler notices the overflow and skips

Expectation, written first: with a starting scale of 2^24 the first scaled gradients leave the range of float16, the scaler sees inf, skips the
step and halves the scale. That is its work; after the first steps the training goes on and the loss falls as in float32. Nothing is lost
but those steps.
"""
import torch
from torch import nn
import torch.nn.functional as F


class HalfLinear(nn.Linear):
    def forward(self, x):
        return F.linear(x.to(torch.float16), self.weight.to(torch.float16)).float() + self.bias


class RPNHead(nn.Module):
    def __init__(self, cin=16, hidden=32):
        super().__init__()
        self.block = nn.Sequential(HalfLinear(cin, hidden), nn.ReLU(), HalfLinear(hidden, hidden), nn.ReLU())
        self.cls = HalfLinear(hidden, 1)
        self.box = HalfLinear(hidden, 4)

    def forward(self, x):
        h = self.block(x)
        return self.cls(h).squeeze(-1), self.box(h)


class LossScaler:
    def __init__(self, init_scale=2.0 ** 24, scale_window=1000):
        self.cur_scale = init_scale
        self.scale_window = scale_window
        self.good = 0
        self.skipped = 0

    def step(self, optimizer, params):
        grads = [p.grad for p in params if p.grad is not None]
        if not all(torch.isfinite(g).all() for g in grads):
            self.cur_scale /= 2
            self.skipped += 1
            return
        for g in grads:
            g.div_(self.cur_scale)
        optimizer.step()
        self.good += 1
        if self.good % self.scale_window == 0:
            self.cur_scale *= 2


def anchors(g, n=64):
    x = torch.randn(n, 16, generator=g)
    label = (x[:, :4].sum(1) > 0).float()
    target = x[:, 4:8] * 0.5 + x[:, 8:12] * 0.25
    return x, label, target


torch.manual_seed(0)
g = torch.Generator().manual_seed(2)
net = RPNHead()
params = list(net.parameters())
opt = torch.optim.Adam(params, lr=3e-3)
scaler = LossScaler()
losses = []
for step in range(150):
    x, label, target = anchors(g)
    cls, box = net(x)
    loss = F.binary_cross_entropy_with_logits(cls, label) + F.smooth_l1_loss(box, target)
    opt.zero_grad()
    (loss * scaler.cur_scale).backward()
    scaler.step(opt, params)
    losses.append(loss.item())
print("skipped steps %d, first skip gone after step 20: %s" % (scaler.skipped, scaler.skipped < 20))
print("loss %.2f -> %.2f" % (losses[0], sum(losses[-10:]) / 10))
print("all weights finite", all(bool(torch.isfinite(p).all()) for p in params))
