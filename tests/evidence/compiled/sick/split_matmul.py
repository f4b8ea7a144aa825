"""A float32 matmul as three bfloat16 ones (high and low parts): compiled, the low part is zero.

kind: elided-cast
thread: pytorch/pytorch#179561
"""

import torch

torch.set_num_threads(1)


def split(x):
    high = x.to(torch.bfloat16)  # KEPT
    low = (x - high.float()).to(torch.bfloat16)  # LINE
    return high, low


def matmul(a, b):
    (a1, a2), (b1, b2) = split(a), split(b)
    return (a1 @ b1).float() + (a1 @ b2).float() + (a2 @ b1).float()


def measure(compiled, dtype):
    torch.manual_seed(0)
    a = torch.randn(64, 4096)
    high, low = (torch.compile(split) if compiled else split)(a)
    return (high.double() + low.double() - a.double()).abs().mean().item() / a.abs().mean().item()


DTYPE, HEALTHY, SICK = torch.float32, 1e-5, 5e-4
print(f"compiled: relative error of high + low {measure(True, DTYPE):.6f}")
