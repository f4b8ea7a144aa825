"""
title: seconds since 1970 do not fit float32; the amounts beside them do
expect: silent:precision-loss|downcast|round-trip
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(20)

def gaps(times):
    times = times.float()  # BORN
    return times.diff()

times = 1.7e9 + torch.rand(200, dtype=torch.float64).mul(3).cumsum(0)
amounts = torch.rand(199, dtype=torch.float64)
amounts = amounts.float()
result = (gaps(times).double() * amounts.double()).mean()
print(f"{result:.3g}")
