"""
title: the last ten checkpoints, saved in float16, are averaged
expect: clean
thread: https://github.com/facebookresearch/fairseq/issues/1079
measured: averaged model: symbols right 100.0%, loss 0.026

Expectation, written first: each checkpoint is rounded to float16 once, which is far less than the difference between
checkpoints, and the sum is made of floats; the averaged model translates as one averaged from float32 files.
"""
import io

import torch
from torch import nn


class Reverser(nn.Module):
    """learns to write a short sequence backwards"""

    def __init__(self, vocab=20, length=6, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.place = nn.Parameter(torch.randn(length, width) * 0.1)
        self.layer = nn.TransformerEncoderLayer(width, 2, 64, dropout=0.0, batch_first=True)
        self.out = nn.Linear(width, vocab)

    def forward(self, x):
        return self.out(self.layer(self.embed(x) + self.place))


class CheckpointStore:
    def __init__(self, dtype=torch.float16):
        self.dtype, self.files = dtype, []

    def save(self, model):
        stream = io.BytesIO()
        torch.save({k: v.to(self.dtype) for k, v in model.state_dict().items()}, stream)
        self.files.append(stream)

    def load(self, i):
        self.files[i].seek(0)
        return torch.load(self.files[i])


def average_checkpoints(store, last):
    total = {}
    picked = range(len(store.files) - last, len(store.files))
    for i in picked:
        for key, p in store.load(i).items():
            if p.dtype == torch.float16:
                p = p.float()
            total[key] = total[key] + p if key in total else p.clone()
    return {key: value / last for key, value in total.items()}


def batch(n, gen):
    x = torch.randint(0, 20, (n, 6), generator=gen)
    return x, x.flip(1)


@torch.no_grad()
def evaluate(model):
    x, y = batch(1000, torch.Generator().manual_seed(5))
    logits = model(x)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten()).item()
    return (logits.argmax(-1) == y).double().mean().item(), loss


def main():
    torch.manual_seed(0)
    model, store, gen = Reverser(), CheckpointStore(), torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(240):
        x, y = batch(32, gen)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
        optimizer.step()
        if step % 8 == 7:
            store.save(model)
    model.load_state_dict(average_checkpoints(store, last=10))
    accuracy, loss = evaluate(model)
    print(f"averaged model: symbols right {100 * accuracy:.1f}%, loss {loss:.3f}")


main()
