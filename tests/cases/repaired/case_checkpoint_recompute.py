"""
title: a position table extended between forward and backward with zeros of its own dtype
expect: clean

The recomputation sees a longer table and the same dtype.
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width, length):
        super().__init__()
        self.register_buffer("place", torch.randn(length, width) * 0.1)
        self.inner = nn.Conv1d(width, 2 * width, 3, padding=1)
        self.outer = nn.Conv1d(2 * width, width, 1)

    def extend(self, length):
        have, width = self.place.shape
        if length > have:
            self.place = torch.cat([self.place, torch.zeros(length - have, width, dtype=self.place.dtype)])

    def forward(self, x):
        self.extend(x.shape[1])
        place = self.place[: x.shape[1]]
        hidden = F.silu(self.inner((x + place).transpose(1, 2)))
        return x + self.outer(hidden).transpose(1, 2)


class Model(nn.Module):
    def __init__(self, vocabulary=40, width=16, length=8):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, length) for _ in range(2))
        self.out = nn.Linear(width, vocabulary)

    def forward(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if torch.is_grad_enabled() else block(x)
        return self.out(x)


def preview(model, prompt):
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        return model(prompt).argmax(-1)


def main():
    torch.manual_seed(0)
    model = Model().to(torch.bfloat16)
    ids = torch.randint(0, 40, (2, 8))
    logits = model(ids)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
    print("preview", preview(model, torch.randint(0, 40, (1, 12))).shape)
    loss.backward()
    print("loss", loss.item())


if __name__ == "__main__":
    main()
