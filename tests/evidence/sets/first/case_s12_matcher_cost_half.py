"""
title: a matcher squares pixel distances in the detector's float16; far pairs are all inf and match at random
expect: silent:overflow
modes: diagnose

IDEA-Research/detrex#248, transformers#47065/#47730. Beyond 255 pixels a square exceeds 65504; nan_to_num hides it, and all far
candidates cost the same.
Measured: All four targets are matched otherwise than in float32.
BORN is the line of the squared distance; it should be taken of predicted.float(), target.float(). The detector's float16 is meant.
"""
import torch
from torch import nn


class Detector(nn.Module):
    def __init__(self, queries=6, width=16):
        super().__init__()
        self.queries = nn.Embedding(queries, width)
        self.box = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, scale):
        return self.box(self.queries.weight).sigmoid() * scale


class Matcher:
    """Greedy: the cheapest pair first."""

    @torch.no_grad()
    def __call__(self, predicted, target):
        apart = predicted[:, None] - target[None]
        cost = apart.square().sum(-1)  # BORN
        cost = torch.nan_to_num(cost, posinf=65504.0)
        pairs = []
        for _ in range(len(target)):
            row, column = divmod(int(cost.argmin()), cost.shape[1])
            pairs.append((row, column))
            cost[row], cost[:, column] = torch.inf, torch.inf
        return sorted(pairs)


torch.manual_seed(0)
model = Detector().half().eval()
target = torch.tensor([[40.0, 60.0], [1200.0, 700.0], [900.0, 40.0], [100.0, 800.0]])
with torch.no_grad():
    boxes = model(torch.tensor([1280.0, 960.0], dtype=torch.float16))
matcher = Matcher()
used, exact = matcher(boxes, target.half()), matcher(boxes.float(), target)
print("matched", used, "in float32", exact, "same:", used == exact)
