"""Angles of numbers divided by the largest of their row, in bfloat16: compiled, some quotients are above one.

kind: kept-wide-discontinuous
thread: pytorch/pytorch#195214
"""

import torch

torch.set_num_threads(1)


def angles(x, scale):
    y = x * scale  # KEPT
    longest = y.abs().amax(-1, keepdim=True)
    return torch.acos(y / longest)  # LINE


def measure(compiled, dtype):
    torch.manual_seed(0)
    x = torch.randn(64, 128).bfloat16().to(dtype)
    result = (torch.compile(angles) if compiled else angles)(x, torch.tensor(0.7).bfloat16().to(dtype))
    return result.isnan().any(-1).double().mean().item()


DTYPE, HEALTHY, SICK = torch.bfloat16, 0.0, 0.05
print(f"compiled: share of rows with NaN {measure(True, DTYPE):.4f}")
