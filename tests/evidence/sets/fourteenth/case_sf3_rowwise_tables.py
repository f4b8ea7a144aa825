"""
title: the embedding tables of a recommender are served in 8 bits with a scale for every row
expect: clean
thread: https://github.com/pytorch/pytorch/pull/41293
measured: scores move 0.5%, top five kept 99%, table 0.33 of its size

Expectation, written first: a row is rounded to 255 steps of its own range and the bag sums in float32; the scores move
by a fraction of a per cent and the recommended items stay.
"""
import torch
from torch import nn


class TwoTower(nn.Module):
    def __init__(self, items=300, categories=40, dim=24):
        super().__init__()
        self.history = nn.EmbeddingBag(items, dim, mode="sum")
        self.category = nn.EmbeddingBag(categories, dim, mode="sum")
        self.user = nn.Linear(2 * dim, dim)
        self.item = nn.Embedding(items, dim)

    def forward(self, bags):
        (hi, ho), (ci, co) = bags
        u = self.user(torch.cat((self.history(hi, ho), self.category(ci, co)), -1))
        return u @ self.item.weight.T


class ByteTable(nn.Module):
    """rows of uint8 with scale and offset behind them"""

    def __init__(self, bag):
        super().__init__()
        self.register_buffer("packed", torch.ops.quantized.embedding_bag_byte_prepack(bag.weight.detach()))

    def forward(self, indices, offsets):
        return torch.ops.quantized.embedding_bag_byte_rowwise_offsets(self.packed, indices, offsets, mode=0)


def bag(lengths, size, gen):
    indices = torch.randint(0, size, (int(lengths.sum()),), generator=gen)
    return indices, torch.cat((torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)[:-1]))


def users(count, gen):
    return bag(torch.randint(3, 12, (count,), generator=gen), 300, gen), bag(torch.randint(1, 5, (count,), generator=gen), 40, gen)


def train(model, gen, steps=60):
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        bags = users(64, gen)
        first = bags[0][0][bags[0][1]]
        loss = nn.functional.cross_entropy(model(bags), (first * 7 + 3) % 300)
        opt.zero_grad()
        loss.backward()
        opt.step()


@torch.no_grad()
def main():
    torch.manual_seed(70)
    gen = torch.Generator().manual_seed(70)
    model = TwoTower()
    with torch.enable_grad():
        train(model, gen)
    bags = users(200, gen)
    before = model(bags)
    floats = model.history.weight.nbytes
    model.history, model.category = ByteTable(model.history), ByteTable(model.category)
    after = model(bags)
    shift = ((after - before).norm() / before.norm()).item()
    kept = (before.topk(5).indices[:, :, None] == after.topk(5).indices[:, None]).any(-1).float().mean().item()
    print(f"scores move {100 * shift:.1f}%, top five kept {100 * kept:.0f}%, table {model.history.packed.nbytes / floats:.2f} of its size")


main()
