"""
title: a quotient of integers widens the bfloat16 tokens that a bfloat16 mask is to pool
expect: collision
fix_at: 46

The mask is bfloat16 like the weights. Two integers divided make a tensor of the default dtype, and the tokens
multiplied by it are what the batched matmul finds out of line.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Collate:
    def __init__(self, pad=0):
        self.pad = pad

    def __call__(self, sentences):
        longest = max(map(len, sentences))
        ids = torch.full((len(sentences), longest), self.pad)
        keep = torch.ones(
            len(sentences),
            longest,
            dtype=torch.bfloat16,
        )
        for row, sentence in enumerate(sentences):
            ids[row, : len(sentence)] = torch.tensor(sentence)
            keep[row, len(sentence):] = 0
        return ids, keep


def mean_pool(hidden, keep):
    share = keep / keep.sum(dim=1, keepdim=True)
    return torch.bmm(share.unsqueeze(1), hidden).squeeze(1)  # COLLIDES


class SentenceEncoder(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.mix = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, ids, keep):
        hidden = self.tokens(ids)
        recency = torch.arange(1, ids.shape[1] + 1) / ids.shape[1]  # BORN
        return F.normalize(mean_pool((hidden + self.mix(hidden)) * recency[:, None], keep), dim=-1)


torch.manual_seed(0)
encoder = SentenceEncoder(30, 24).bfloat16()
ids, keep = Collate()([[3, 4, 5], [6, 7, 8, 9, 10], [11]])
a, b, c = encoder(ids, keep)
print("similarity", round((a @ b).item(), 3), round((a @ c).item(), 3))
