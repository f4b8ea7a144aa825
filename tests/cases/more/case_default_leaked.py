"""
title: a load that fails half-way leaves float16 behind as the default dtype
expect: collision
fix_at: 23, 32, 33

The loader sets the default dtype, building the larger model fails, and the line that would have set it back is never
reached. The program goes on with the float32 model that it has; the state it makes next is float16.
"""
import torch
from torch import nn

SIZES = {"small": {"width": 8}, "large": {"width": 16, "depth": 2}}


class Tracker(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.cell = nn.GRUCell(3, width)
        self.out = nn.Linear(width, 2)

    def forward(self, points):
        state = torch.zeros(points.shape[1], self.width)
        for point in points:
            state = self.cell(point, state)  # COLLIDES
        return self.out(state)


def build(size, dtype):
    usual = torch.get_default_dtype()
    torch.set_default_dtype(dtype)  # BORN
    model = Tracker(**SIZES[size])
    torch.set_default_dtype(usual)
    return model


def largest():
    model = build("small", torch.float32)
    try:
        model = build("large", torch.float16)
    except TypeError as error:
        print("staying small:", error)
    return model


torch.manual_seed(0)
points = torch.randn(5, 2, 3)
print(largest()(points).tolist())
