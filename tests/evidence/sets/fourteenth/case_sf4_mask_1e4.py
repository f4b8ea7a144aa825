"""
title: padded words are masked with -1e4 in the half precision attention of a translator
expect: clean
thread: https://github.com/bentrevett/pytorch-seq2seq/issues/191
measured: weight on padded words 0.0000, same words 100%

Expectation, written first: -1e4 fits into float16 and the energies are a few units, so exp of a masked word is zero in
any type; no padded word is looked at, and the tokens that come out are those of float64.
"""
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, mask):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        energy = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        energy = energy.masked_fill(mask[:, None, None, :] == 0, -1e4)
        attention = torch.softmax(energy, dim=-1)
        return (attention @ v).transpose(1, 2).flatten(2), attention


class Encoder(nn.Module):
    def __init__(self, width=32, vocab=24):
        super().__init__()
        self.attention = Attention(width)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab)

    def forward(self, source, mask):
        mixed, attention = self.attention(source, mask)
        return self.head(self.norm(source + mixed)), attention


def sentences(gen, n=16, length=20, width=32):
    source = torch.randn(n, length, width, generator=gen)
    lengths = torch.randint(5, length + 1, (n,), generator=gen)
    mask = torch.arange(length)[None] < lengths[:, None]
    source[~mask] = 30.0
    return source, mask


@torch.no_grad()
def main():
    torch.manual_seed(0)
    plain = Encoder().double().eval()
    model = Encoder().half().eval()
    model.load_state_dict(plain.state_dict())
    gen = torch.Generator().manual_seed(1)
    leak, same, total = 0.0, 0, 0
    for _ in range(5):
        source, mask = sentences(gen)
        logits, attention = model(source.half(), mask)
        exact, _ = plain(source.double(), mask)
        leak = max(leak, attention.double().masked_fill(mask[:, None, None, :], 0).sum(-1).max().item())
        same += (logits.argmax(-1) == exact.argmax(-1))[mask].sum().item()
        total += mask.sum().item()
    print(f"weight on padded words {leak:.4f}, same words {100 * same / total:.0f}%")


main()
