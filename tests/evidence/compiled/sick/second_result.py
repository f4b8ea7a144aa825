"""A custom normalisation that returns statistics in float32, and whose fake kernel says bfloat16 for both results.

kind: fake-kernel
thread: pytorch/pytorch#181851
"""

import torch

torch.set_num_threads(1)


@torch.library.custom_op("dtypetrace_evidence::normalised", mutates_args=())
def normalised(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.float().square().mean(-1, keepdim=True).rsqrt()
    return (x * scale).to(x.dtype), scale


@normalised.register_fake
def _(x):
    return torch.empty_like(x), x.new_empty(*x.shape[:-1], 1)


def scales(x):
    result, scale = normalised(x)  # LINE
    return result + 1, scale * 2


def measure(compiled, dtype):
    torch.manual_seed(0)
    x = torch.rand(64, 16).bfloat16().to(dtype) + 1
    _, scale = (torch.compile(scales) if compiled else scales)(x)
    true = x.double().square().mean(-1, keepdim=True).rsqrt() * 2
    return ((scale.double() - true).abs() > 0.02 * true).double().mean().item()


DTYPE, HEALTHY, SICK = torch.bfloat16, 0.0, 0.3
print(f"compiled: share of scales that are wrong {measure(True, DTYPE):.4f}")
