"""
title: a bf16 model's average is kept in float32
expect: clean
thread: https://github.com/NUS-HPC-AI-Lab/VideoSys/pull/6

Expectation, written first: the average follows the weights; it differs from one of float64 by less than a thousandth.
"""
import copy

import torch
from torch import nn


class EMA:
    def __init__(self, model, decay=0.999):
        self.decay, self.model = decay, copy.deepcopy(model).float().requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for e, p in zip(self.model.parameters(), model.parameters()):
            e.mul_(self.decay).add_(p.float(), alpha=1 - self.decay)


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 8))
master = [p.detach().clone() for p in net.parameters()]
net = net.bfloat16()
for p, m in zip(net.parameters(), master):
    m.requires_grad_(True)
opt = torch.optim.AdamW(master, lr=1e-3)
ema = EMA(net)
exact = [p.detach().double() for p in net.parameters()]
g = torch.Generator().manual_seed(1)
for _ in range(200):
    x = torch.randn(64, 8, generator=g).bfloat16()
    loss = (net(x) - x.roll(1, -1)).float().square().mean()
    net.zero_grad()
    loss.backward()
    for m, p in zip(master, net.parameters()):
        m.grad = p.grad.float()
    opt.step()
    with torch.no_grad():
        for m, p in zip(master, net.parameters()):
            p.copy_(m)
    ema.update(net)
    exact = [0.999 * e + 0.001 * p.detach().double() for e, p in zip(exact, net.parameters())]
off = max((a.double() - b).abs().max().item() for a, b in zip(ema.model.parameters(), exact))
print(f"loss {loss.item():.3f}, average off by {off:.1e}")
