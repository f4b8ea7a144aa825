"""Block scales applied with ldexp: eager computes float16 by float32 in float32, compiled code in float16: infinite.

kind: other-dtype
thread: pytorch/pytorch#197091
"""

import torch

torch.set_num_threads(1)


def unpack(blocks, exponents):
    return torch.ldexp(blocks, exponents)  # LINE


def measure(compiled, dtype):
    torch.manual_seed(0)
    blocks, exponents = torch.randn(16, 32).half(), torch.full((16, 1), 18.0)
    result = (torch.compile(unpack) if compiled else unpack)(blocks, exponents)
    return (~result.isfinite()).double().mean().item()


DTYPE, HEALTHY, SICK = torch.float16, 0.0, 0.5
print(f"compiled: share of values that are infinite {measure(True, DTYPE):.4f}")
