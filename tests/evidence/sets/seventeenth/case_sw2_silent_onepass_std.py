"""
title: standard deviation of genes is zero or wildly off: one-pass sums of squares in float32
expect: silent:cancellation|precision-loss
thread: https://github.com/cellarium-ai/cellarium-ml/issues/113
measured: std of the genes 0.0765 0.1169 0.1531 0.0884 0.1250 0.0442; rms of the z-scores 1.288
widened: std of the genes 0.0997 0.1009 0.1000 0.1000 0.1000 0.1004; rms of the z-scores 1
innocent: std of the genes 0.0765 0.1169 0.1531 0.0884 0.1250 0.0442; rms of the z-scores 1.288
suspect: 25 float32 loader: small (values of 151 are good to 1e-5, the spread is 0.1)

Expectation, written first: The running sums are float32 buffers. With mean 151 and std 0.1 the difference of E[x^2] and E[x]^2 is a
    millionth of either, below float32, so the variance is noise and the z-scores follow. The float32 loader looks the same, but it rounds
    single values by 1e-5 of their spread only.
"""
import torch
from torch import nn


class DistributedAnnDataLoader:
    def __init__(self, n_batches, batch, n_genes, mean, std, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.batches = [mean + std * torch.randn(batch, n_genes, generator=g, dtype=torch.float64) for _ in range(n_batches)]

    def __iter__(self):
        for x in self.batches:
            yield {"x_ng": x.to(torch.float32)}
class OnePassMeanVarStd(nn.Module):
    def __init__(self, n_genes):
        super().__init__()
        self.register_buffer("x_sums", torch.zeros(n_genes, dtype=torch.float32))  # BORN
        self.register_buffer("x_squared_sums", torch.zeros(n_genes, dtype=torch.float32))  # BORN
        self.register_buffer("x_size", torch.tensor(0))

    def forward(self, x_ng):
        x_ng = x_ng.to(self.x_sums.dtype)
        self.x_sums += x_ng.sum(dim=0)
        self.x_squared_sums += (x_ng**2).sum(dim=0)
        self.x_size += x_ng.shape[0]

    @property
    def mean_g(self):
        return self.x_sums / self.x_size

    @property
    def var_g(self):
        return (self.x_squared_sums / self.x_size - self.mean_g**2).clamp(min=0)

    @property
    def std_g(self):
        return self.var_g.sqrt()


class ZScore(nn.Module):
    def __init__(self, stats, eps=1e-6):
        super().__init__()
        self.mean_g, self.std_g, self.eps = stats.mean_g, stats.std_g, eps

    def forward(self, x_ng):
        return (x_ng - self.mean_g) / (self.std_g + self.eps)


loader = DistributedAnnDataLoader(60, 500, 6, mean=151.0, std=0.1)
stats = OnePassMeanVarStd(6)
for batch in loader:
    stats(**batch)
zscore = ZScore(stats)
z = torch.cat([zscore(batch["x_ng"]) for batch in loader])
print("std of the genes " + " ".join(f"{v:.4f}" for v in stats.std_g.tolist()))
print(f"rms of the z-scores {z.double().pow(2).mean().sqrt():.4g}")
