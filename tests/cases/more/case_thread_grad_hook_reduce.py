"""
title: a tensor hook that clips in float32 returns a float32 gradient to a bfloat16 activation
expect: collision
fix_at: 17, 18

67372a #8: "Found dtype BFloat16 but expected Float" in backward. The hook's result has another dtype than the activation.
"""
import torch
from torch import nn


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(scale)
        return x * scale.to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        (scale,) = ctx.saved_tensors
        clipped = g.float().clamp(-1, 1) * scale  # BORN
        return torch.mm(clipped, torch.eye(g.shape[1], dtype=g.dtype)), None  # COLLIDES


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.Tanh()).to(torch.bfloat16)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scale = torch.full((8,), 0.5)
y = Scaled.apply(net(torch.randn(4, 8).bfloat16()), scale)
y.float().square().mean().backward()
optimizer.step()
