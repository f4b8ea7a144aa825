"""
title: ids go through bfloat16; so does the weight of each token, which is harmless
expect: silent:precision-loss|downcast|round-trip
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(21)

def to_device(batch):
    batch["ids"] = batch["ids"].to(torch.bfloat16)  # BORN
    batch["weights"] = batch["weights"].to(torch.bfloat16)
    return batch

table = nn.Embedding(4096, 8)
batch = to_device({"ids": torch.randint(0, 4000, (4, 64)), "weights": torch.rand(4, 64, 1)})
with torch.no_grad():
    found = table(batch["ids"].long())
result = (found * batch["weights"].float()).sum()
print(f"{result:.3g}")
