"""
title: Adam in pure float16: the squared gradients and eps are both zero
expect: silent:underflow|overflow|lost-update
modes: diagnose

After afiaka87/glide-finetune#6 and pytorch/pytorch#8860 (Adam in half gives NaN after the first step).
Damage: all 2128 weights are NaN or inf after one step; repaired (float32 weights under autocast) the loss falls.
Right change: keep the weights in float32.
"""
import torch
import torch.nn as nn


class Upsampler(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.inp = nn.Linear(dim, 32)
        self.mid = nn.Linear(32, 32)
        self.out = nn.Linear(32, dim)

    def forward(self, x):
        h = torch.relu(self.inp(x))
        return self.out(torch.relu(self.mid(h)))


def make_batch(gen, n=64, dim=16):
    x = torch.randn(n, dim, generator=gen)
    return x, torch.tanh(x.roll(1, -1)) * 0.1


def train(model, steps, dtype):
    opt = torch.optim.Adam(model.parameters(), lr=1e-4)  # BORN
    gen = torch.Generator().manual_seed(0)
    losses = []
    for _ in range(steps):
        x, y = make_batch(gen)
        pred = model(x.to(dtype))
        loss = (pred.float() - y).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()  # BORN
        losses.append(loss.item())
    return losses


torch.manual_seed(0)
model = Upsampler().half()  # BORN
losses = train(model, 5, torch.float16)
bad = sum(int((~torch.isfinite(p)).sum()) for p in model.parameters())
print("losses", [round(v, 4) for v in losses], "non-finite weights", bad)
