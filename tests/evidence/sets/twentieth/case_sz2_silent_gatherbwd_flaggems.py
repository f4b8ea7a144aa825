"""
title: the backward of gather adds up the gradients of a repeated index in bfloat16 and the sum stops growing
expect: silent:lost-update|precision-loss|gradient-dtype|downcast
thread: https://github.com/flagos-ai/FlagGems/pull/4295
measured: gradient of the last bucket 16.0 expected 153.125 ; ratio of the total 0.464
widened: gradient of the last bucket 153.0 expected 153.125 ; ratio of the total 1.000
innocent: gradient of the last bucket 16.0 expected 153.125 ; ratio of the total 0.464
suspect: 51 fits (the table has sixteen rows)

Expectation, written first: the gradient buffer is made with the dtype of grad_output, bfloat16, and each of the hundreds of contributions of a repeated index is
added to it in turn; at 256 times the addend half a step is as large as the addend and the sum stands still, so the gradient of frequent rows is too
small. The indices are int16 on the way, but the table has only sixteen rows.
"""
import torch
from torch import nn


def gather_backward(grad, shape, dim, index):
    grad_input = torch.zeros(shape, dtype=grad.dtype)  # BORN
    for step in range(index.shape[dim]):
        grad_input.scatter_add_(dim, index.narrow(dim, step, 1), grad.narrow(dim, step, 1))  # BORN
    return grad_input.to(grad.dtype)


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inp, dim, index):
        ctx.save_for_backward(index)
        ctx.shape, ctx.dim = inp.shape, dim
        return torch.gather(inp, dim, index)

    @staticmethod
    def backward(ctx, grad):
        (index,) = ctx.saved_tensors
        return gather_backward(grad, ctx.shape, ctx.dim, index), None, None


class PairwiseBias(nn.Module):
    def __init__(self, heads=4, buckets=16):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(heads, buckets, dtype=torch.bfloat16))

    def forward(self, buckets):
        index = buckets.long().flatten()[None].expand(self.table.shape[0], -1)
        return Gather.apply(self.table, 1, index).view(-1, *buckets.shape)


def relative_buckets(n, num_buckets=16):
    pos = torch.arange(n)
    distance = (pos[:, None] - pos[None]).abs()
    return distance.clamp(max=num_buckets - 1).to(torch.int16)


def main():
    torch.manual_seed(0)
    bias = PairwiseBias()
    buckets = relative_buckets(64)
    weight = torch.full((4, 64, 64), 0.0625)
    out = bias(buckets)
    (out.float() * weight).sum().backward()
    counts = torch.bincount(buckets.long().flatten(), minlength=16)
    got = bias.table.grad[0].float()
    want = counts * 0.0625
    print("gradient of the last bucket", got[-1].item(), "expected", want[-1].item())
    print(f"ratio of the total {(got.sum() / want.sum()).item():.3f}")


main()
