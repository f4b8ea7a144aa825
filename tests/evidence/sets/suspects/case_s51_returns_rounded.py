"""
title: returns with a large offset are rounded before they are normalised; the advantages are rounded after
expect: silent:precision-loss|downcast|round-trip
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(28)

def advantages(returns):
    returns = returns.bfloat16().float()  # BORN
    centred = returns - returns.mean()
    scaled = centred / (centred.std() + 1e-6)
    return scaled.bfloat16().float()

returns = 1000 + torch.randn(256)
gold = (returns - returns.mean()) / returns.std()
result = (advantages(returns) * gold).mean()
print(f"{result:.3g}")
