"""
title: sums of durations are counted in bfloat16; the durations are rounded to it too and stay exact
expect: silent:precision-loss|downcast|round-trip
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(17)

def places(durations):
    durations = durations.bfloat16().float()
    ends = durations.cumsum(-1, dtype=torch.bfloat16)  # BORN
    return ends.long()

durations = torch.randint(1, 9, (4, 120))
ends = places(durations)
spans = torch.diff(ends, dim=-1)
result = (spans - durations[:, 1:]).abs().float().mean() + spans.float().mean()
print(f"{result:.3g}")
