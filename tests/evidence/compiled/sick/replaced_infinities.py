"""A float16 energy whose infinities are to be replaced: compiled, they do not exist before the result is stored.

kind: kept-wide-discontinuous
thread: pytorch/pytorch#183607
"""

import torch

torch.set_num_threads(1)


def energy(x):
    power = x * x  # KEPT
    return torch.where(power.isinf(), torch.zeros_like(power), power)  # LINE


def measure(compiled, dtype):
    torch.manual_seed(0)
    x = (200 * torch.randn(64, 64)).half().to(dtype)
    return (~(torch.compile(energy) if compiled else energy)(x).isfinite()).double().mean().item()


DTYPE, HEALTHY, SICK = torch.float16, 0.0, 0.1
print(f"compiled: share of energies that are infinite {measure(True, DTYPE):.4f}")
