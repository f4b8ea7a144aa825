"""
title: the gradients of many micro-batches are added up in a bf16 buffer
expect: silent:lost-update|precision-loss
thread: https://github.com/NVIDIA/Megatron-LM/issues/502
measured: accumulated norm 3.640 of 4.385, relative error 0.226
widened: accumulated norm 4.386 of 4.385, relative error 0.001

Expectation, written first: after some hundred micro-batches the sum is far larger than one addend and bf16 drops
the addends or rounds them badly; the accumulated gradient comes out much too short against that of the whole batch.
The activations under a bf16 autocast make only a little difference.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Args:
    micro_batch_size: int = 2
    global_batch_size: int = 2048
    hidden: int = 32
    seed: int = 4


class MemoryBuffer:
    """flat storage; every parameter gets a view of it as main_grad"""

    def __init__(self, params):
        total = sum(p.numel() for p in params)
        self.data = torch.zeros(total, dtype=torch.bfloat16)  # BORN
        start = 0
        for p in params:
            p.main_grad = self.data[start : start + p.numel()].view_as(p)
            start += p.numel()

    def zero(self):
        self.data.zero_()


class DistributedDataParallel(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        params = list(module.parameters())
        self.buffer = MemoryBuffer(params)
        for p in params:
            p.register_post_accumulate_grad_hook(self.add_to_main_grad)

    @staticmethod
    def add_to_main_grad(p):
        p.main_grad.add_(p.grad)
        p.grad = None

    def forward(self, *inputs):
        return self.module(*inputs)


class Regressor(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(12, hidden), nn.GELU(), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.inner(x).squeeze(-1)


def loss_func(model, x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x)
    return F.mse_loss(out.float(), y)


def forward_backward(args, model, x, y):
    model.buffer.zero()
    chunks = list(zip(x.split(args.micro_batch_size), y.split(args.micro_batch_size)))
    for mx, my in chunks:
        loss_func(model, mx, my).backward()
    return torch.cat([p.main_grad.double().flatten() for p in model.parameters()]) / len(chunks)


def main():
    args = Args()
    torch.manual_seed(args.seed)
    model = DistributedDataParallel(Regressor(args.hidden))
    x = torch.randn(args.global_batch_size, 12)
    y = x[:, :3].sum(1) + 1.5
    got = forward_backward(args, model, x, y)
    plain = model.module
    whole = torch.autograd.grad(F.mse_loss(plain(x), y), list(plain.parameters()))
    want = torch.cat([g.double().flatten() for g in whole])
    print(f"accumulated norm {got.norm().item():.3f} of {want.norm().item():.3f}, "
          f"relative error {((got - want).norm() / want.norm()).item():.3f}")


main()
