"""
title: probabilities become zero in half before their logarithm; the logits were in half as well
expect: silent:underflow|overflow|precision-loss
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(11)

def surprise(logits, labels):
    probabilities = logits.float().softmax(-1)
    probabilities = probabilities.half()  # BORN
    return -probabilities.log().float().gather(-1, labels)

logits = 7 * torch.randn(64, 40)
logits = logits.half()
labels = torch.randint(0, 40, (64, 1))
result = surprise(logits, labels).mean()
print(f"{result:.3g}")
