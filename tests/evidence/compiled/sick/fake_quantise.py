"""A float32 model that is rounded to float16 between its layers, to see what float16 would cost: compiled, nothing.

kind: elided-cast
thread: pytorch/pytorch#185337
"""

import torch

torch.set_num_threads(1)


def rounded(x):
    return x.to(torch.float16).to(torch.float32)  # LINE


def measure(compiled, dtype):
    torch.manual_seed(0)
    x = torch.randn(256, 64)
    result = (torch.compile(rounded) if compiled else rounded)(x)
    return (result != x.half().float()).double().mean().item()


DTYPE, HEALTHY, SICK = torch.float32, 0.0, 0.5
print(f"compiled: share of values that are not rounded {measure(True, DTYPE):.4f}")
