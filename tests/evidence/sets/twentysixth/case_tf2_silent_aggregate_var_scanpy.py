"""
title: aggregate(func="var") gives wrong variances for strongly expressed genes
expect: silent:precision-loss|downcast
thread: https://github.com/scverse/scanpy/pull/4122
measured: A median var 0.00 smallest -56.3 largest 60.3 / B median var -4.02 smallest -36.2 largest 52.2 / C median var 0.00 smallest -48.3 largest 32.2 / mean expression 6306
widened: A median var 1.02 smallest 0.9 largest 1.2 / B median var 0.97 smallest 0.9 largest 1.2 / C median var 0.99 smallest 0.8 largest 1.3 / mean expression 6306; innocent: A median var 0.00 smallest -56.3 largest 60.3 / B median var -4.02 smallest -36.2 largest 52.2 / C median var 0.00 smallest -48.3 largest 32.2 / mean expression 6306
suspect: 27 exact (there are three groups)

Expectation, written first: the variance is taken as mean of squares minus square of the mean in float32. With intensities
near 6000 and a spread of 1 the two terms are 3.6e7 and agree to seven digits; what remains is rounding. Remedy: float64
before squaring. The group codes in int8 are exact.
"""
import torch


def mean_var(sums, sq_sums, counts):
    mean_ = sums / counts
    mean_sq = sq_sums / counts
    sq_mean = mean_ ** 2  # BORN
    var_ = mean_sq - sq_mean  # BORN
    return mean_, var_ * (counts / (counts - 1))


class Aggregate:
    def __init__(self, groupby, data):
        self.names = sorted(set(groupby))
        self.codes = torch.tensor([self.names.index(g) for g in groupby], dtype=torch.int8)
        data = data.to(torch.float32)  # BORN
        self.data = data

    def indicator_sum(self, x):
        out = x.new_zeros(len(self.names), x.shape[1])
        return out.index_add_(0, self.codes.long(), x)

    def count(self):
        return torch.bincount(self.codes.long(), minlength=len(self.names)).unsqueeze(1)

    def mean_var(self):
        sums = self.indicator_sum(self.data)
        sq_sums = self.indicator_sum(self.data ** 2)  # BORN
        return mean_var(sums, sq_sums, self.count())


def aggregate(adata, by, func):
    agg = Aggregate(adata["obs"][by], adata["X"])
    mean_, var_ = agg.mean_var()
    return agg.names, {"mean": mean_, "var": var_}[func]


def load_adata(n_cells=600, n_genes=40):
    generator = torch.Generator().manual_seed(4122)
    level = 4000 + 4000 * torch.rand(1, n_genes, generator=generator, dtype=torch.float64)
    X = level + torch.randn(n_cells, n_genes, generator=generator, dtype=torch.float64)
    groups = torch.randint(0, 3, (n_cells,), generator=generator).tolist()
    return {"X": X, "obs": {"louvain": ["ABC"[g] for g in groups]}}


def main():
    adata = load_adata()
    names, var = aggregate(adata, by="louvain", func="var")
    _, mean = aggregate(adata, by="louvain", func="mean")
    for name, row in zip(names, var):
        print(f"{name} median var {row.median():.2f} smallest {row.min():.1f} largest {row.max():.1f}")
    print(f"mean expression {mean.mean():.0f}")


if __name__ == "__main__":
    main()
