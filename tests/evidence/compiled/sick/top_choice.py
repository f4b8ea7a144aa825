"""Whether the chosen class has the largest score, in bfloat16: compiled, it never has.

kind: kept-wide-discontinuous
thread: pytorch/pytorch#186799
"""

import torch

torch.set_num_threads(1)


def agrees(hidden, temperature):
    scores = hidden * temperature  # KEPT
    chosen = scores.argmax(-1, keepdim=True)
    return scores.gather(-1, chosen)[:, 0] == scores.amax(-1)  # LINE


def measure(compiled, dtype):
    torch.manual_seed(0)
    hidden = torch.randn(64, 32).bfloat16().to(dtype)
    same = (torch.compile(agrees) if compiled else agrees)(hidden, torch.tensor(0.7).bfloat16().to(dtype))
    return (~same).double().mean().item()


DTYPE, HEALTHY, SICK = torch.bfloat16, 0.0, 0.5
print(f"compiled: share of rows whose largest is not the largest {measure(True, DTYPE):.4f}")
