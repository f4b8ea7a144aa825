"""
title: a coordinate grid is asked for in the dtype of a canvas that was given none
expect: collision
fix_at: 34

The dtype travels as an attribute and then as an argument; no value of the canvas ever reaches the network. The helper
does what it is told, and so does everybody else.
"""
import torch
from torch import nn


def grid(rows, columns, *, dtype, device=None):
    down = torch.linspace(-1, 1, rows, dtype=dtype, device=device)
    right = torch.linspace(-1, 1, columns, dtype=dtype, device=device)
    return torch.stack(torch.meshgrid(down, right, indexing="ij"), dim=-1)


class Field(nn.Module):
    """A picture as a function of place."""

    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(2, width), nn.Linear(width, width)
        self.colour = nn.Linear(width, 3)

    def forward(self, place):
        hidden = torch.sin(30 * self.first(place))  # COLLIDES
        return self.colour(torch.sin(self.second(hidden))).sigmoid()


def paint(field, size, tile):
    canvas = torch.empty(size, size, 3)  # BORN
    place = grid(*canvas.shape[:2], dtype=canvas.dtype, device=canvas.device)
    for top in range(0, size, tile):
        canvas[top:top + tile] = field(place[top:top + tile])
    return canvas


torch.manual_seed(0)
with torch.inference_mode():
    print(paint(Field(16).to(torch.bfloat16), size=12, tile=4).shape)
