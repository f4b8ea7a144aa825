"""
title: indices of the nearest atoms take the bfloat16 of the distances, with a sentinel for the others
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/RosettaCommons/foundry/pull/236
measured: repeated neighbours 50.4%, far ones 3.2%
widened: repeated neighbours 0.0%, far ones 0.0%

Expectation, written first: atom numbers above 256 are rounded to multiples of 2, 4 and 8, so
the gathered neighbours are other atoms and many come several times.
"""
import torch


class SparseIndices:
    def __init__(self, k):
        self.k = k

    def __call__(self, distances, reachable):
        n = distances.shape[-1]
        order = distances.masked_fill(~reachable, 1e6).argsort(-1)[:, : self.k]
        index = torch.full((len(distances), self.k), n, dtype=distances.dtype)  # BORN
        valid = reachable.gather(1, order)
        index[valid] = order[valid].to(index.dtype)  # BORN
        return index.sort(-1).values.long()


def chain(n, gen):
    steps = torch.nn.functional.normalize(torch.randn(n, 3, generator=gen), dim=-1) * 1.5
    return steps.cumsum(0)


def main(n=1500, k=16):
    gen = torch.Generator().manual_seed(0)
    coords = chain(n, gen)
    dist = torch.cdist(coords, coords)
    reachable = dist < 25
    found = SparseIndices(k)(dist.to(torch.bfloat16), reachable)
    repeated = wrong = total = 0
    for i in range(n):
        row = [j for j in found[i].tolist() if j < n]
        repeated += len(row) - len(set(row))
        wrong += sum(dist[i, j].item() > dist[i].kthvalue(2 * k).values.item() for j in set(row))
        total += k
    print(f"repeated neighbours {100 * repeated / total:.1f}%, far ones {100 * wrong / total:.1f}%")


main()
