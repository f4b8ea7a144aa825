"""
title: keys wrap in int32; the class of each edge is int32 as well and fits
expect: silent:overflow|precision-loss
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(16)

def keys(source, target, nodes):
    source = source.to(torch.int32)  # BORN
    return source * nodes + target

nodes = 100_000
source, target = torch.randint(0, nodes, (500,)), torch.randint(0, nodes, (500,))
kind = torch.randint(0, 4, (500,))
kind = kind.to(torch.int32)
found = keys(source, target.to(torch.int32), nodes)
result = (found.double() / nodes / nodes).mean() + 0 * kind.float().mean()
print(f"{result:.3g}")
