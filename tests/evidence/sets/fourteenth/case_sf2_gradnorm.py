"""
title: the gradient norm of a sharded model is put together from half precision norms
expect: silent:overflow
thread: https://github.com/facebookresearch/fairscale/pull/263
measured: first norm inf, loss 71.3, largest weight 0.00
widened: first norm 2308, loss 3.3, largest weight 2.90

Expectation, written first: the local norm of a shard is some thousands and its square is more than 65504, so the total is
infinite, the clip factor zero, and no weight moves. The inputs are rounded to bfloat16 first, which costs nothing here.
"""
import torch
from torch import nn


class ShardedModel(nn.Module):
    def __init__(self, width=64, shards=4):
        super().__init__()
        self.shards = nn.ParameterList(nn.Parameter(torch.zeros(width // shards, dtype=torch.float16)) for _ in range(shards))  # BORN

    def forward(self, x):
        return x @ torch.cat([p.float() for p in self.shards])


def calc_grad_norm(parameters):
    return torch.stack([p.grad.norm(2) for p in parameters])  # BORN


@torch.no_grad()
def clip_grad_norm(model, limit):
    """each rank has one shard; the squares are added over the ranks"""
    local = calc_grad_norm(model.shards)
    total = (local**2).sum().sqrt()  # BORN
    factor = limit / (total + 1e-6)
    if factor < 1:
        for p in model.shards:
            p.grad = (p.grad.float() * factor.float()).to(p.dtype)
    return total.item()


class Task:
    def __init__(self, width=64, seed=0):
        self.gen = torch.Generator().manual_seed(seed)
        self.truth = torch.randn(width, generator=self.gen)

    def batch(self, n=32):
        x = torch.randn(n, len(self.truth), generator=self.gen)
        x = x.to(torch.bfloat16).float()
        return x, x @ self.truth


def main():
    model, task = ShardedModel(), Task()
    optimizer = torch.optim.SGD(model.shards, lr=0.2)
    norms, losses = [], []
    for _ in range(60):
        x, y = task.batch()
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        (loss * 64).backward()
        norms.append(clip_grad_norm(model, limit=1.0))
        optimizer.step()
        losses.append(loss.item())
    print(f"first norm {norms[0]:.0f}, loss {sum(losses[-5:]) / 5:.1f}, largest weight {max(p.abs().max().item() for p in model.shards):.2f}")


main()
