"""
title: an activation checkpoint recomputes its block outside of the autocast region of the forward
expect: collision
thread: https://github.com/NVIDIA/TransformerEngine/issues/787
fix_at: 21, 32, 33, 66

Expectation, written first: in the forward the block runs under autocast and its saved input is bfloat16 (the output of
a linear layer before it); backward() is called after the region, the recomputation has no autocast, and float32
weights meet the bfloat16 input. Cause: the checkpoint's backward, which does not bring the autocast state back (the
forward that does not keep it).
"""
import torch
import torch.nn.functional as F
from torch import nn


class Checkpoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, block, x, *params):
        ctx.block = block
        ctx.rng = torch.get_rng_state()  # BORN
        ctx.save_for_backward(x)
        with torch.no_grad():
            return block(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        x = x.detach().requires_grad_(True)
        now = torch.get_rng_state()
        torch.set_rng_state(ctx.rng)
        with torch.enable_grad():  # BORN
            out = ctx.block(x)  # BORN COLLIDES
        torch.set_rng_state(now)
        torch.autograd.backward(out, grad)
        return (None, x.grad, *[None for _ in ctx.block.parameters()])


def block(width):
    return nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * width, width))


class Tower(nn.Module):
    def __init__(self, inputs, width, depth):
        super().__init__()
        self.stem = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(block(width) for _ in range(depth))

    def forward(self, x):
        x = self.stem(x)
        for part in self.blocks:
            x = Checkpoint.apply(part, x, *part.parameters())
        return x


def main():
    torch.manual_seed(0)
    tower = Tower(12, 24, depth=3)
    optimizer = torch.optim.SGD(tower.parameters(), lr=0.05)
    x, y = torch.randn(64, 12), torch.randn(64, 24)
    for step in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = tower(x)
        loss = F.mse_loss(out.float(), y)
        loss.backward()
        optimizer.step()
        print(step, f"{loss.item():.2f}")


main()
