"""
title: a network in half with small numbers
expect: clean
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(9)

model = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 8)).half().eval()
with torch.inference_mode():
    result = model(torch.randn(32, 16).half()).float().softmax(-1).amax(-1).mean()
print(f"{result:.3g}")
