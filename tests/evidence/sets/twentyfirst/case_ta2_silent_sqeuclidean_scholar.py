"""
title: density clustering of projected coordinates finds the wrong groups because squared distances are expanded into dot products
expect: silent:cancellation|precision-loss
thread: https://github.com/elixir-nx/scholar/pull/354
measured: 320 points: 1 clusters, 0 noise points
widened: 320 points: 8 clusters, 0 noise points ; innocent: 320 points: 1 clusters, 0 noise points
suspect: 31 range (distances are narrowed to bf16 for the neighbour matrix; the threshold is far from any true distance)

Expectation, written first: the pairwise metric computes x.x + y.y - 2 x.y; with coordinates near 4e5 the terms are about 3e11, whose
float32 step is 32768, so points metres or tens of metres apart come out at any distance, mostly zero after the clamp, and all sites
melt into one cluster or break up. The bf16 copy of the distances only rounds what is already lost.
"""
import torch


def pairwise_squared_euclidean(x, y):
    x_norm = (x * x).sum(-1, keepdim=True)  # BORN
    y_norm = (y * y).sum(-1, keepdim=True)  # BORN
    squared = x_norm + y_norm.T - 2 * (x @ y.T)  # BORN
    return squared.clamp_min(0)


class DBSCAN:
    def __init__(self, eps, min_samples):
        self.eps = eps
        self.min_samples = min_samples
        self.labels_ = None

    def _neighbours(self, x):
        dist = pairwise_squared_euclidean(x, x).sqrt()
        dist = dist.to(torch.bfloat16)
        return dist <= self.eps

    def fit(self, x):
        adjacency = self._neighbours(x)
        core = adjacency.sum(-1) >= self.min_samples
        labels = torch.full((x.shape[0],), -1, dtype=torch.long)
        cluster = 0
        for seed in range(x.shape[0]):
            if labels[seed] >= 0 or not core[seed]:
                continue
            frontier = torch.zeros_like(core)
            frontier[seed] = True
            members = frontier.clone()
            while frontier.any():
                reached = adjacency[frontier & core].any(0) & ~members
                members |= reached
                frontier = reached
            labels[members & (labels < 0)] = cluster
            cluster += 1
        self.labels_ = labels
        return self


def survey_sites(sites, per_site, spread):
    centres = torch.tensor([[412000.0, 398000.0]]) + 60.0 * torch.stack(
        [torch.arange(sites) % 4, torch.arange(sites) // 4], dim=1
    )
    return (centres.unsqueeze(1) + spread * torch.randn(sites, per_site, 2)).reshape(-1, 2)


def main():
    torch.manual_seed(0)
    x = survey_sites(sites=8, per_site=40, spread=2.0)
    model = DBSCAN(eps=12.0, min_samples=5).fit(x)
    clusters = int(model.labels_.max()) + 1
    noise = int((model.labels_ < 0).sum())
    print(f"{x.shape[0]} points: {clusters} clusters, {noise} noise points")


if __name__ == "__main__":
    main()
