"""
title: pairs of cells are counted in int32; the effect sizes are rounded to half as well
expect: silent:integer-overflow|overflow
thread: https://github.com/MarioniLab/scran/issues/115
measured: mean error of a score 0.73, score of gene 5 -0.57
widened: mean error of a score 0.00, score of gene 5 -1.18

Expectation, written first: two clusters of more than 46341 cells have a product beyond int32, so a weight is
negative and the markers' mean turns round. Half effects change its fourth digit only.
"""
import torch


class Clusters:
    def __init__(self, labels, k):
        self.sizes = torch.bincount(labels, minlength=k).to(torch.int32)  # BORN

    def pair_weights(self):
        return self.sizes[:, None] * self.sizes[None, :]  # BORN


class Effects:
    """pairwise effect sizes of every gene, kept small on disk"""

    def __init__(self, means, sd):
        delta = (means[:, :, None] - means[:, None, :]) / sd
        self.cohen = delta.to(torch.float16)

    def __getitem__(self, gene):
        return self.cohen[gene].double()


class MarkerScore:
    def __init__(self, clusters, effects):
        self.clusters, self.effects = clusters, effects

    def score(self, gene, cluster):
        weight = self.clusters.pair_weights()[cluster].double()
        weight[cluster] = 0
        return ((self.effects[gene][cluster] * weight).sum() / weight.sum()).item()

    def best(self, genes, cluster):
        return max(genes, key=lambda g: self.score(g, cluster))


def atlas(gen, sizes=(40_967, 7_374, 63_330), genes=30):
    labels = torch.repeat_interleave(torch.arange(3), torch.tensor(sizes))
    labels = labels[torch.randperm(len(labels), generator=gen)]
    means = torch.rand(genes, 3, generator=gen, dtype=torch.float64) * 4
    return labels, means


def main():
    gen = torch.Generator().manual_seed(0)
    labels, means = atlas(gen)
    markers = MarkerScore(Clusters(labels, 3), Effects(means, sd=0.8))
    true = (means[:, 2] - (40_967 * means[:, 0] + 7_374 * means[:, 1]) / 48_341) / 0.8
    got = torch.tensor([markers.score(g, 2) for g in range(30)], dtype=torch.float64)
    print(f"mean error of a score {(got - true).abs().mean().item():.2f}, score of gene 5 {got[5].item():.2f}")


main()
