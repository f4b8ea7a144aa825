"""
title: a model prepared by accelerate gives float32, the frozen head behind it is bfloat16
expect: collision
thread: https://github.com/huggingface/accelerate/issues/2513
fix_at: 41, 51, 54, 55, 58, 59

Expectation, written first: with mixed_precision bf16 the body runs in bfloat16 inside, but the prepared forward
converts its outputs to float32; the user, who expects bfloat16, cast the frozen head to bfloat16 by hand and calls it
outside of the region. Cause: the cast of the head (leave it float32), or the prepare whose outputs are float32, or
the call that passes the features on uncast.
"""
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn


class Body(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.embed = nn.Linear(6, width)
        self.attn = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        h = self.embed(x)
        h = h + self.attn(h, h, h, need_weights=False)[0]
        return self.out(self.norm(h))


class Prototypes(nn.Module):
    """frozen class vectors"""

    def __init__(self, width, classes):
        super().__init__()
        self.linear = nn.Linear(width, classes, bias=False)
        self.requires_grad_(False)

    def forward(self, h):
        return self.linear(h.mean(1))  # COLLIDES


def data(n, gen):
    x = torch.randn(n, 5, 6, generator=gen)
    return x, (x[:, 0, 0] > 0).long()


def main():
    torch.manual_seed(0)
    accelerator = Accelerator(mixed_precision="bf16", cpu=True)
    body, head = Body(), Prototypes(24, 2)
    optimizer = torch.optim.AdamW(body.parameters(), lr=1e-2)
    body, optimizer = accelerator.prepare(body, optimizer)  # BORN
    head = head.to(torch.bfloat16)  # BORN
    x, y = data(64, torch.Generator().manual_seed(0))
    for step in range(5):
        features = body(x)
        logits = head(features)  # BORN
        loss = F.cross_entropy(logits.float(), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    accelerator.print(f"loss {loss.item():.2f}")


main()
