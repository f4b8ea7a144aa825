"""Gradients sent in bfloat16, what was lost kept for the next time: compiled, nothing seems lost.

kind: elided-cast
thread: pytorch/pytorch#179561
"""

import torch

torch.set_num_threads(1)


def compress(gradient, residual):
    whole = gradient + residual
    sent = whole.bfloat16()  # KEPT
    residual.copy_(whole - sent)  # LINE
    return sent


def measure(compiled, dtype):
    torch.manual_seed(0)
    step = torch.compile(compress) if compiled else compress
    gradient, residual = torch.rand(256) * 1e-3, torch.zeros(256)
    total = sum(step(gradient, residual).double() for _ in range(100))
    return ((total - 100 * gradient.double()).norm() / (100 * gradient.double()).norm()).item()


DTYPE, HEALTHY, SICK = torch.float32, 1e-4, 5e-4
print(f"compiled: share of the gradients that never arrives {measure(True, DTYPE):.6f}")
