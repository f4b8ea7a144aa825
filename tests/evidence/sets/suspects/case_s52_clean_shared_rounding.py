"""
title: both sides of a ratio read the same rounded logits
expect: clean
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)

logits = (6 * torch.randn(16, 64, 200)).bfloat16().float()
tokens = logits.softmax(-1).flatten(0, 1).multinomial(1).view(16, 64, 1)
total = lambda: F.log_softmax(logits, -1).gather(-1, tokens).sum((1, 2))
ratio = (total() - total().clone()).exp()
result = ratio.std()
print(f"{result:.3g}")
