"""
title: Adam keeps its moments in bfloat16, the second moment never forgets the first batches
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/InfiniTensor/InfiniTrain/pull/210
measured: step 500 loss 1.1873 | step 2000 loss 0.7473 | step 3999 loss 0.3942 | mean second moment of shift 6.30e-01 | distance of shift to target 2.516
widened: step 500 loss 1.1734 | step 2000 loss 0.5343 | step 3999 loss 0.0514 | mean second moment of shift 1.53e-02 | distance of shift to target 0.908
innocent: step 500 loss 1.1873 | step 2000 loss 0.7473 | step 3999 loss 0.3942 | mean second moment of shift 6.30e-01 | distance of shift to target 2.516
suspect: line 33, each gradient is rounded once and consumed

Expectation, written first: m and v take the dtype of the bfloat16 parameter. v * 0.999 differs from v by less than half a unit in the
last place of bfloat16, so v stays where the first noisy batches put it and the step stays tiny long after the gradients became small.
With moments in float32 v decays and the weights reach the target. The bfloat16 gradient is harmless, and a float32 master copy is kept.
"""
import torch
from torch import nn


class Adam:
    def __init__(self, params, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8):
        self.params = list(params)
        self.lr, self.beta1, self.beta2, self.eps = lr, beta1, beta2, eps
        self.t = 0
        self.master = [p.detach().float().clone() for p in self.params]
        self.m = [torch.zeros_like(p) for p in self.params]  # BORN
        self.v = [torch.zeros_like(p) for p in self.params]  # BORN

    @torch.no_grad()
    def step(self):
        self.t += 1
        c1 = 1 - self.beta1 ** self.t
        c2 = 1 - self.beta2 ** self.t
        for p, w, m, v in zip(self.params, self.master, self.m, self.v):
            g = p.grad.to(torch.bfloat16)
            m.mul_(self.beta1).add_(g.to(m.dtype), alpha=1 - self.beta1)
            v.mul_(self.beta2).addcmul_(g.to(v.dtype), g.to(v.dtype), value=1 - self.beta2)  # BORN
            denom = (v.float() / c2).sqrt() + self.eps
            w.sub_(self.lr * (m.float() / c1) / denom)
            p.copy_(w)
            p.grad = None


class ScaleShift(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim))
        self.shift = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return x * self.scale + self.shift


def batches(steps, dim, g, target_scale, target_shift):
    for i in range(steps):
        x = torch.randn(32, dim, generator=g)
        y = x * target_scale + target_shift
        if i < 12:
            y = y + 60.0 * torch.randn(dim, generator=g)
        yield x, y


g = torch.Generator().manual_seed(0)
dim = 16
target_scale = 1 + 0.5 * torch.rand(dim, generator=g)
target_shift = torch.randn(dim, generator=g)
model = ScaleShift(dim).to(torch.bfloat16)
opt = Adam(model.parameters(), lr=1e-3)
for step, (x, y) in enumerate(batches(4000, dim, g, target_scale, target_shift)):
    loss = (model(x).float() - y).pow(2).mean()
    loss.backward()
    opt.step()
    if step in (500, 2000, 3999):
        print("step %d loss %.4f" % (step, loss.item()))
print("mean second moment of shift %.2e" % opt.v[1].float().mean())
print("distance of shift to target %.3f" % (opt.master[1] - target_shift).norm())
