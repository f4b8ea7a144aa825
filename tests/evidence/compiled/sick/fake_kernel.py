"""A custom operator whose fake kernel says bfloat16 and whose real one gives float32: compiled code reads half numbers.

kind: fake-kernel
thread: pytorch/pytorch#181851
"""

import torch

torch.set_num_threads(1)


@torch.library.custom_op("dtypetrace_evidence::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x.float() * 2


@scaled.register_fake
def _(x):
    return torch.empty_like(x)


def shifted(x):
    return scaled(x) + 1  # LINE


def measure(compiled, dtype):
    x = torch.linspace(0, 1, 64).bfloat16().to(dtype)
    result = (torch.compile(shifted) if compiled else shifted)(x)
    return ((result.double() - (x.double() * 2 + 1)).abs() > 0.1).double().mean().item()


DTYPE, HEALTHY, SICK = torch.bfloat16, 0.0, 0.3
print(f"compiled: share of values that are wrong {measure(True, DTYPE):.4f}")
