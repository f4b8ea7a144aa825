"""A custom operator that computes in float32 and forgets to cast back, as its fake kernel says: memory is misread.

kind: fake-dtype
thread: pytorch/pytorch#181851
"""

import torch

torch.set_num_threads(1)


@torch.library.custom_op("evidence::scaled", mutates_args=())
def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
    return x.float() * by


@scaled.register_fake
def _(x, by):
    return torch.empty_like(x)


def layer(x):
    return scaled(x, 0.5) + 1  # LINE


def measure(compiled, dtype):
    torch.manual_seed(0)
    x = torch.randn(64, 64).to(dtype)
    result = (torch.compile(layer) if compiled else layer)(x)
    return (result.double() - (x.double() / 2 + 1)).abs().mean().item()


DTYPE, HEALTHY, SICK = torch.bfloat16, 0.02, 0.1
print(f"compiled: mean error {measure(True, DTYPE):.4f}")
