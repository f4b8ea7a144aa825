"""
title: causal, key-padding and query-padding masks of finfo.min are added in float16, the sum is -inf
expect: silent:overflow
modes: diagnose

After NVIDIA-NeMo/Automodel#2658 and the left-padding NaN threads of transformers: min + min overflows to -inf, the row of a padded query is all
-inf, its softmax NaN, and in the second layer NaN times 0 spoils every token of that text: 3 of 4 scores are NaN (repaired: none).
Right: combine the masks as booleans and fill once.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(33)
PAD = 0


def additive(hidden, dtype):
    """0 where it may be seen, the smallest number where it may not."""
    return hidden.to(dtype) * torch.finfo(dtype).min


def build_mask(ids, dtype):
    length = ids.shape[1]
    causal = additive(torch.ones(length, length, dtype=torch.bool).triu(1), dtype)[None, None]
    keys = additive((ids == PAD)[:, None, None, :], dtype)
    queries = additive((ids == PAD)[:, None, :, None], dtype)
    return causal + keys + queries  # BORN


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(self.norm(x)).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) * (d // self.heads) ** -0.5
        weight = F.softmax(scores.float() + mask.float(), dim=-1).to(v.dtype)
        return x + self.out((weight @ v).transpose(1, 2).reshape(b, t, d))


class RewardModel(nn.Module):
    def __init__(self, vocab=40, dim=32, heads=4, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.score = nn.Linear(dim, 1)

    def forward(self, ids):
        x = self.embed(ids)
        mask = build_mask(ids, x.dtype)
        for layer in self.layers:
            x = layer(x, mask)
        return self.score(x[:, -1])[:, 0]


def left_padded(rows, longest=8):
    return torch.tensor([[PAD] * (longest - len(row)) + row for row in rows])


def main():
    model = RewardModel().half().eval()
    rows = [torch.randint(1, 40, (n,)).tolist() for n in (8, 6, 5, 3)]
    with torch.inference_mode():
        scores = model(left_padded(rows)).float()
    print("scores", [round(s, 3) for s in scores.tolist()], "best", int(scores.nan_to_num(-1e9).argmax()))


main()
