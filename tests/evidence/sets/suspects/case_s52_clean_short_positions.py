"""
title: positions up to 200 in bfloat16 stay exact
expect: clean
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(1)

freqs = 2.0 ** -torch.arange(8).float()
positions = torch.arange(200).bfloat16()
result = torch.outer(positions.float(), freqs).sin().sum()
print(f"{result:.3g}")
