"""
title: queries and keys normalised in float32 and never brought back, added to a half ALiBi bias
expect: collision

The bias is half like every layer and like the values. Two of the three operands of the product are float32, and
yet the one half operand is right: the normalisation has widened the other two.
"""
import torch
from torch import nn


def alibi(heads, length):
    slopes = torch.tensor(
        [
            2.0 ** (-8.0 * (head + 1) / heads)
            for head in range(heads)
        ],
        dtype=torch.half,
    )
    place = torch.arange(length)
    distance = (place[None, :] - place[:, None]).abs().neg()
    return slopes.view(heads, 1, 1) * distance


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def split(self, x):
        batch, length, width = x.shape
        return x.view(batch, length, self.heads, -1).transpose(1, 2).reshape(batch * self.heads, length, -1)

    def forward(self, x, bias):
        batch, length, width = x.shape
        q, k, v = (self.split(layer(x)) for layer in (self.q, self.k, self.v))
        q, k = (nn.functional.normalize(part.float(), dim=-1) for part in (q, k))  # BORN
        scores = torch.baddbmm(  # COLLIDES
            bias.repeat(batch, 1, 1),
            q,
            k.transpose(1, 2),
            alpha=q.shape[-1] ** -0.5,
        )
        mixed = scores.softmax(dim=-1) @ v
        return mixed.view(batch, self.heads, length, -1).transpose(1, 2).reshape(batch, length, width)


torch.manual_seed(0)
attention = Attention(width=16, heads=4).to(torch.half)
x = torch.randn(2, 6, 16).to(torch.half)
print(attention(x, alibi(4, 6)).dtype)
