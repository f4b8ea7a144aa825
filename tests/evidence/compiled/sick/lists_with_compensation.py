"""A compiled optimizer step over lists of bfloat16 weights with compensation: compiled, every small update is lost.

kind: elided-cast
thread: pytorch/pytorch#179561
"""

import torch

torch.set_num_threads(1)


def step(weights, rests, updates):
    torch._foreach_add_(rests, updates)
    before = [w.clone() for w in weights]
    torch._foreach_add_(weights, rests)  # KEPT
    torch._foreach_sub_(before, weights)  # LINE
    torch._foreach_add_(rests, before)


def measure(compiled, dtype):
    weights = [torch.ones(64, dtype=dtype) for _ in range(3)]
    rests = [torch.zeros(64, dtype=dtype) for _ in range(3)]
    updates = [torch.full((64,), 1e-3).bfloat16().to(dtype) for _ in range(3)]
    run = torch.compile(step) if compiled else step
    for _ in range(100):
        run(weights, rests, updates)
    return abs(weights[0].double().mean().item() - 1.1) / 0.1


DTYPE, HEALTHY, SICK = torch.bfloat16, 0.05, 0.5
print(f"compiled: share of the updates that is lost {measure(True, DTYPE):.4f}")
