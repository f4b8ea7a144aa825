"""Products in two bfloat16 parts, the rounded one and its error: compiled, every error is zero.

kind: elided-cast
thread: pytorch/pytorch#179561
"""

import torch

torch.set_num_threads(1)


def two_parts(a, b):
    product = a * b  # KEPT
    error = a.float() * b.float() - product.float()  # LINE
    return product, error.to(torch.bfloat16)


def measure(compiled, dtype):
    torch.manual_seed(0)
    a, b = torch.randn(64, 64).bfloat16().to(dtype), torch.randn(64, 64).bfloat16().to(dtype)
    product, error = (torch.compile(two_parts) if compiled else two_parts)(a, b)
    exact = a.double() * b.double()
    return ((product.double() + error.double() - exact).abs().mean() / exact.abs().mean()).item()


DTYPE, HEALTHY, SICK = torch.bfloat16, 1e-4, 1e-3
print(f"compiled: relative error of both parts {measure(True, DTYPE):.6f}")
