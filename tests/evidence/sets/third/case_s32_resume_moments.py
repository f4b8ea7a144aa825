"""
title: Adam's moments saved in float16 to halve the checkpoint
expect: silent:underflow|round-trip|downcast|precision-loss
modes: diagnose

After OpenTau#184/#185 and DeepSpeed#7786 (resume loses the optimizer's precision).
Damage: exp_avg_sq below 6e-8 becomes 0: the first step after the resume is far too long (loss 4e-6 to 2e-3, 250 times the repaired).
Right change: save the state as it is.
"""
import io

import torch
import torch.nn as nn


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))


def shrink(obj, dtype):
    if isinstance(obj, torch.Tensor) and obj.is_floating_point() and obj.dim() > 0:
        return obj.to(dtype)  # BORN
    if isinstance(obj, dict):
        return {k: shrink(v, dtype) for k, v in obj.items()}
    return obj


def save(model, opt):
    f = io.BytesIO()
    torch.save({"model": model.state_dict(), "optim": shrink(opt.state_dict(), torch.float16)}, f)  # BORN
    f.seek(0)
    return f


def load(f, lr):
    ckpt = torch.load(f, weights_only=True)
    model = build()
    model.load_state_dict(ckpt["model"])
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    opt.load_state_dict(ckpt["optim"])  # BORN
    return model, opt


def train(model, opt, steps, seed):
    gen = torch.Generator().manual_seed(seed)
    losses = []
    for _ in range(steps):
        x = torch.randn(32, 8, generator=gen)
        loss = 0.01 * (model(x) - 0.1 * x[:, :1]).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


model = build()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
before = train(model, opt, 60, 1)
model, opt = load(save(model, opt), 1e-3)
after = train(model, opt, 5, 2)
print("before", f"{before[-1]:.2e}", "after the resume", [f"{v:.2e}" for v in after])
