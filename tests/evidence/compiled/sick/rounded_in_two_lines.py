"""A float32 model that shows what bfloat16 weights would cost, the cast and the cast back on two lines: compiled, nothing.

kind: elided-cast
thread: pytorch/pytorch#176565
"""

import torch
from torch import nn

torch.set_num_threads(1)


class Rounded(nn.Module):
    def forward(self, x):
        narrow = x.to(torch.bfloat16)  # KEPT
        return narrow.to(torch.float32)  # LINE


def measure(compiled, dtype):
    torch.manual_seed(0)
    model, x = Rounded(), torch.randn(64, 64)
    result = (torch.compile(model) if compiled else model)(x)
    return (result != x.bfloat16().float()).double().mean().item()


DTYPE, HEALTHY, SICK = torch.float32, 0.0, 0.5
print(f"compiled: share of weights that are not rounded {measure(True, DTYPE):.4f}")
