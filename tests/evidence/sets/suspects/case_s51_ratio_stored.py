"""
title: the stored log-probability is rounded; the logits are rounded too, but both sides read those
expect: silent:precision-loss|downcast|round-trip
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)

def total(logits, tokens):
    return F.log_softmax(logits, -1).gather(-1, tokens).sum((1, 2))

logits = 6 * torch.randn(16, 64, 200)
logits = logits.bfloat16().float()
tokens = logits.softmax(-1).flatten(0, 1).multinomial(1).view(16, 64, 1)
new = total(logits, tokens)
old = new.bfloat16()  # BORN
ratio = (new - old.float()).exp()
result = ratio.std()
print(f"{result:.3g}")
