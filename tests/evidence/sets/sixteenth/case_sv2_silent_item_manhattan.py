"""
title: the city block distance of long item vectors is taken after they were halved
expect: silent:overflow|downcast
thread: https://github.com/Lightning-AI/torchmetrics/issues/1380
measured: recall@1 2%
widened: recall@1 100%

Expectation, written first: the sum of the differences of all pixels passes 65504, every distance is infinite and the
first item of the catalogue is "nearest" to everything. The short thumbnails that choose the candidates are float16
as well; their distances stay below 100.
"""
import torch


def pairwise_manhattan(x, y):
    out = torch.empty(len(x), len(y), dtype=x.dtype)
    for i, row in enumerate(x):
        out[i] = (row - y).abs().sum(-1)
    return out


class Catalogue:
    def __init__(self, items, pool=512):
        self.items = items
        self.pool = pool
        self.short = self.thumbnail(items)

    def thumbnail(self, x):
        return (x.unflatten(-1, (-1, self.pool)).mean(-1) / 16).half()

    def candidates(self, query, keep):
        return pairwise_manhattan(self.thumbnail(query), self.short).topk(keep, largest=False).indices

    def nearest(self, query, keep=40):
        chosen = self.candidates(query, keep)
        best = []
        for q, rows in zip(query, chosen):
            rows = rows.sort().values
            distance = pairwise_manhattan(q[None].half(), self.items[rows].half())[0]  # BORN
            best.append(rows[distance.argmin()])
        return torch.stack(best)


def main():
    gen = torch.Generator().manual_seed(7)
    base = torch.randint(0, 200, (30, 128, 1), generator=gen).repeat_interleave(10, 0)
    detail = torch.randint(0, 56, (300, 128, 512), generator=gen)
    items = (base + detail).flatten(1).float()
    wanted = torch.randint(0, 300, (50,), generator=gen)
    query = items[wanted] + 6 * torch.randn(50, items.shape[1], generator=gen)
    found = Catalogue(items).nearest(query)
    print(f"recall@1 {100 * (found == wanted).float().mean():.0f}%")


main()
