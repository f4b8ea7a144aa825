"""Noise of the default dtype, which the program set to bfloat16: compiled, it is drawn in float32.

kind: other-dtype
thread: pytorch/pytorch#138015
"""

import torch

torch.set_num_threads(1)


def noisy(x):
    noise = torch.randn(8)  # LINE
    return x + noise


def measure(compiled, dtype):
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        result = (torch.compile(noisy) if compiled else noisy)(torch.ones(8, dtype=dtype))
    finally:
        torch.set_default_dtype(before)
    return (result.dtype != dtype) * 1.0


DTYPE, HEALTHY, SICK = torch.bfloat16, 0.0, 0.5
print(f"compiled: the result has another dtype {measure(True, DTYPE):.0f}")
