"""Square roots of distances to the least value of a row, in bfloat16: compiled, some distances are below zero.

kind: kept-wide-discontinuous
thread: pytorch/pytorch#186799
"""

import torch

torch.set_num_threads(1)


def spread(x, scale):
    y = x * scale  # KEPT
    least = y.amin(-1, keepdim=True)
    return (y - least).sqrt()  # LINE


def measure(compiled, dtype):
    torch.manual_seed(0)
    x = torch.randn(64, 128).bfloat16().to(dtype)
    result = (torch.compile(spread) if compiled else spread)(x, torch.tensor(0.7).bfloat16().to(dtype))
    return result.isnan().any(-1).double().mean().item()


DTYPE, HEALTHY, SICK = torch.bfloat16, 0.0, 0.05
print(f"compiled: share of rows with NaN {measure(True, DTYPE):.4f}")
