"""
title: time gaps between the clicks of a session
expect: silent:precision-loss|downcast
thread: https://github.com/circonus-labs/reconnoiter/pull/330
measured: median gap 0.0 s, longest 128 s, size of the pooled vector 0.635
widened: median gap 20.0 s, longest 39 s, size of the pooled vector 0.318

Expectation, written first: the clock readings of the clicks are cast to the type of
the features (float32), in which unix seconds are 128 s apart, so gaps of some seconds are zero
or two minutes. BORN is the type_as; float64 there, or taking gaps first, mends it. The
explicit bf16 of the item vectors is a plain compression.
"""
import torch
from torch import nn


class ClickLog:
    def __init__(self, sessions, clicks, seed):
        gen = torch.Generator().manual_seed(seed)
        gaps = torch.randint(2, 40, (sessions, clicks), generator=gen)
        start = 1_718_000_000 + torch.randint(0, 86400, (sessions, 1), generator=gen)
        self.stamps = start + gaps.cumsum(1)
        self.items = torch.randint(0, 50, (sessions, clicks), generator=gen)


class ItemVectors(nn.Module):
    def __init__(self, items=50, dim=6):
        super().__init__()
        self.table = nn.Embedding(items, dim)

    def forward(self, items):
        return self.table(items).to(torch.bfloat16).float()


class GapFeatures:
    """Attention of a click decays with the seconds since the last one."""

    def __init__(self, half_life):
        self.half_life = half_life

    def gaps(self, stamps, features):
        t = stamps.type_as(features)  # BORN
        return t[:, 1:] - t[:, :-1]

    def __call__(self, stamps, features):
        gaps = self.gaps(stamps, features).float()
        decay = torch.pow(0.5, gaps / self.half_life)
        return (decay[..., None] * features[:, 1:]).mean(1), gaps


@torch.no_grad()
def main():
    torch.manual_seed(0)
    log, vectors = ClickLog(sessions=200, clicks=12, seed=0), ItemVectors()
    pooled, gaps = GapFeatures(half_life=15.0)(log.stamps, vectors(log.items))
    print("median gap %.1f s, longest %.0f s, size of the pooled vector %.3f"
          % (gaps.median().item(), gaps.max().item(), pooled.norm(dim=1).mean().item()))


if __name__ == "__main__":
    main()
