"""
title: a relative position bias in float32 carries the scores, and the second hop's matmul, into float32
expect: silent:promotion

The bias is a table of distances, made in the default dtype at each call.
"""
import torch
from torch import nn


def distance_bias(heads, length):
    slope = torch.tensor([2.0 ** -(h + 1) for h in range(heads)])  # BORN
    place = torch.arange(length)
    return -(place[None, :] - place[:, None]).abs() * slope[:, None, None]


class TwoHops(nn.Module):
    """Attention whose probabilities are followed twice."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / q.shape[-1] ** 0.5 + distance_bias(self.heads, x.shape[1])
        once = scores.softmax(dim=-1)
        both = 0.5 * (once + once @ once)
        return self.out((both.to(v.dtype) @ v).transpose(1, 2).flatten(2))


torch.manual_seed(0)
model = nn.ModuleList(TwoHops(32, 2) for _ in range(3)).half().eval()
x = torch.randn(1, 20, 32).half()
with torch.inference_mode():
    for layer in model:
        x = x + layer(x)
print(x.dtype)