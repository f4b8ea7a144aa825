"""
title: a hand-written forward saves a float32 copy of its input for a bfloat16 backward
expect: collision

The window is cast, the incoming gradient and the weights are bfloat16. The product fails because of what the forward
laid by.
"""
import torch
from torch import nn


def window(x, limit):
    return torch.where(x.abs() <= limit, 1.0, 0.0).to(x.dtype)


class ClippedMLP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, inner, outer, limit):
        hidden = x @ inner.t()
        ctx.save_for_backward(x.float(), inner, outer, hidden)  # BORN
        ctx.limit = limit
        return hidden.clamp(-limit, limit) @ outer.t()

    @staticmethod
    def backward(ctx, grad):
        x, inner, outer, hidden = ctx.saved_tensors
        passed = window(hidden, ctx.limit)
        grad_outer = grad.t() @ hidden.clamp(-ctx.limit, ctx.limit)
        grad_hidden = (grad @ outer) * passed
        grad_inner = grad_hidden.t() @ x  # COLLIDES
        return grad_hidden @ inner, grad_inner, grad_outer, None


class Clipped(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.inner = nn.Parameter(torch.randn(hidden, width) * 0.2)
        self.outer = nn.Parameter(torch.randn(width, hidden) * 0.2)

    def forward(self, x):
        return x + ClippedMLP.apply(x, self.inner, self.outer, 1.0)


torch.manual_seed(0)
network = nn.Sequential(Clipped(8, 16), nn.LayerNorm(8), Clipped(8, 16)).to(torch.bfloat16)
optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
for _ in range(2):
    x = torch.randn(6, 8).to(torch.bfloat16)
    loss = (network(x) - x.flip(-1)).float().pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", round(loss.item(), 3))
