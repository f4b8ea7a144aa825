"""Noise with a float16 mean and a float32 deviation: eager draws it in float16, compiled code in float32.

kind: other-dtype
thread: pytorch/pytorch#194547
"""

import torch

torch.set_num_threads(1)


def noise(mean, deviation):
    return torch.normal(mean, deviation)  # LINE


def measure(compiled, dtype):
    torch.manual_seed(0)
    result = (torch.compile(noise) if compiled else noise)(torch.zeros(16).to(dtype), torch.ones(16))
    return 1.0 if result.dtype != dtype else 0.0


DTYPE, HEALTHY, SICK = torch.float16, 0.0, 0.5
print(f"compiled: the noise has another dtype {measure(True, DTYPE):.0f}")
