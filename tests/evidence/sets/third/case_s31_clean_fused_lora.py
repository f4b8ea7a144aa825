"""
title: a fused LoRA Function with custom_fwd and custom_bwd
expect: clean

Looks like fused_lora_backward; the backward runs under the forward's autocast.
"""
import torch
import torch.nn as nn


class FusedLora(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x, w, a, b, scale):
        down = x @ a.t()
        out = x @ w.t() + scale * (down @ b.t())
        ctx.save_for_backward(x, w, a, b)
        ctx.scale = scale
        return out

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, dy):
        x, w, a, b = ctx.saved_tensors
        dyb = (dy @ b) * ctx.scale
        dx = dy @ w + dyb @ a
        db = ctx.scale * (dy.flatten(0, 1).t() @ (x @ a.t()).flatten(0, 1))
        da = dyb.flatten(0, 1).t() @ x.flatten(0, 1)
        return dx, None, da, db, None


class LoraLinear(nn.Module):
    def __init__(self, n_in, n_out, r=4):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_out, n_in) / n_in ** 0.5, requires_grad=False)
        self.a = nn.Parameter(torch.randn(r, n_in) * 0.02)
        self.b = nn.Parameter(torch.randn(n_out, r) * 0.02)

    def forward(self, x):
        return FusedLora.apply(x, self.weight, self.a, self.b, 2.0)


torch.manual_seed(0)
net = nn.Sequential(nn.LayerNorm(12), LoraLinear(12, 24), nn.GELU(), LoraLinear(24, 12))
opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-2)
for step in range(3):
    x = torch.randn(2, 5, 12)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = net(x)
        loss = (y.float() - x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print("loss", loss.item())
