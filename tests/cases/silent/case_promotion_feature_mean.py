"""
title: a mean read from a list widens half features, and the similarities of a retrieval run in float32
expect: silent:promotion

Outside any module, between two uses of a half encoder.
"""
import torch
import torch.nn.functional as F
from torch import nn

STATISTICS = {"mean": [0.1, -0.2, 0.3, 0.0, 0.5, -0.1, 0.2, 0.4]}


def similarities(encoder, queries, gallery):
    mean = torch.tensor(STATISTICS["mean"])  # BORN
    q, g = (F.normalize(encoder(batch) - mean, dim=-1) for batch in (queries, gallery))
    return q @ g.t()


torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 8)).to(torch.float16).eval()
with torch.no_grad():
    close = similarities(encoder, torch.randn(5, 12).half(), torch.randn(40, 12).half())
print(close.dtype, close.topk(2).indices.tolist())