"""
title: the seeds of random masks pass through float32 and two views get the same mask; the small picture numbers may be half
expect: silent:precision-loss|downcast|round-trip
"""
import torch

torch.manual_seed(919)


class Views:
    """Two masked views of each picture; the seed is made of run, picture and view."""

    def __init__(self, run=20261126, patches=64):
        self.run, self.patches = run, patches

    def seeds(self, pictures):
        pictures = pictures.half().long()
        base = self.run * 1000 + pictures * 2
        pair = torch.stack([base, base + 1], dim=1)
        return pair.float()  # BORN

    def masks(self, pictures):
        seeds = self.seeds(pictures)
        rows = [torch.rand(self.patches, generator=torch.Generator().manual_seed(int(s))) < 0.5 for s in seeds.flatten().tolist()]
        return torch.stack(rows).view(len(pictures), 2, -1)


views = Views()
masks = views.masks(torch.arange(100))
same = (masks[:, 0] == masks[:, 1]).float().mean().item()
seen = masks.any(1).float().mean().item()
print("likeness of two views", round(same, 3), "patches seen", round(seen, 3), "different masks", len(masks.flatten(0, 1).unique(dim=0)))
