"""
title: seeds below sixteen million pass through float32, picture numbers below two thousand through half; all masks differ
expect: clean
"""
import torch

torch.manual_seed(955)


class Views:
    def __init__(self, run=261, patches=64):
        self.run, self.patches = run, patches

    def seeds(self, pictures):
        base = self.run * 10000 + pictures.half().long() * 2
        return torch.stack([base, base + 1], dim=1).float()

    def masks(self, pictures):
        seeds = self.seeds(pictures).flatten().tolist()
        rows = [torch.rand(self.patches, generator=torch.Generator().manual_seed(int(s))) < 0.5 for s in seeds]
        return torch.stack(rows).view(len(pictures), 2, -1)


masks = Views().masks(torch.arange(100))
print("likeness of two views", round((masks[:, 0] == masks[:, 1]).float().mean().item(), 2), "different masks", len(masks.flatten(0, 1).unique(dim=0)))
