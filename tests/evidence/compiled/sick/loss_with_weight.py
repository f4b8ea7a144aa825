"""A bfloat16 loss whose class weights are float32: compiled, the loss that is bfloat16 in eager is float32.

kind: other-dtype
thread: pytorch/pytorch#197098
"""

import torch
import torch.nn.functional as F

torch.set_num_threads(1)


def loss(scores, target, weight):
    each = F.binary_cross_entropy(scores.sigmoid(), target, weight=weight, reduction="none")  # LINE
    return each


def measure(compiled, dtype):
    torch.manual_seed(0)
    scores, target = torch.randn(64).to(dtype), (torch.rand(64) > 0.5).to(dtype)
    result = (torch.compile(loss) if compiled else loss)(scores, target, torch.rand(64))
    return (result.dtype != dtype) * 1.0


DTYPE, HEALTHY, SICK = torch.bfloat16, 0.0, 0.5
print(f"compiled: the loss has another dtype {measure(True, DTYPE):.0f}")
