"""Position numbers of DETR's kind in float16: compiled, the sum that is to be half is int64 and takes half steps down.

kind: other-dtype
thread: pytorch/pytorch#189518
"""

import torch

torch.set_num_threads(1)


def positions(rows, columns):
    ones = torch.ones((rows, columns), dtype=torch.bool)
    return ones.cumsum(1, dtype=torch.float16)  # LINE


def measure(compiled, dtype):
    result = (torch.compile(positions) if compiled else positions)(4, 8)
    return ((result / 2).dtype != torch.float16) * 1.0 if dtype == torch.float16 else 0.0


DTYPE, HEALTHY, SICK = torch.float16, 0.0, 0.5
print(f"compiled: the result has another dtype {measure(True, DTYPE):.0f}")
