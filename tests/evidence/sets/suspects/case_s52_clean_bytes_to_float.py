"""
title: bytes are made floating before they are subtracted
expect: clean
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(4)

frames = torch.randint(0, 256, (9, 16, 16), dtype=torch.uint8)
result = (frames[1:].float() - frames[:-1].float()).abs().mean()
print(f"{result:.3g}")
