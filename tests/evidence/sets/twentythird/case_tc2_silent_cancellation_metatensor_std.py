"""
title: std_over_samples gives NaN for features whose spread is small against their mean
expect: silent:cancellation|precision-loss
thread: https://github.com/metatensor/metatensor/issues/902
measured: nan entries 321 of 960 | median std 1.22e-04 (drawn 5.0e-05) | entries dropped as constant: 58%
widened: nan entries 0 of 960 | median std 4.62e-05 (drawn 5.0e-05) | entries dropped as constant: 0%
innocent: nan entries 321 of 960 | median std 1.22e-04 (drawn 5.0e-05) | entries dropped as constant: 58%
suspect: line 39, small integers are exact in half

Expectation, written first: the standard deviation over the atoms of a structure is E[x^2] - E[x]^2 in the dtype of the block, and the
calculator hands out float32. With a mean of 0.277 and a spread of 5e-5 the two terms agree to seven digits, the difference is noise,
often negative, and the square root is NaN or wildly off. In float64 every value is right. The float16 multiplicities hold small
integers and are exact.
"""
import torch


class TensorBlock:
    def __init__(self, values, samples):
        self.values = values
        self.samples = samples


class SoapLikeCalculator:
    def __init__(self, n_features, seed, dtype=torch.float32):  # BORN
        self.gen = torch.Generator().manual_seed(seed)
        self.n_features = n_features
        self.dtype = dtype

    def compute(self, n_systems, atoms):
        base = torch.rand(n_systems, 1, self.n_features, generator=self.gen, dtype=torch.float64) - 0.5
        base = base + 0.3 * base.sign()
        jitter = torch.randn(n_systems, atoms, self.n_features, generator=self.gen, dtype=torch.float64) * 5e-5
        values = (base + jitter).reshape(-1, self.n_features).to(self.dtype)  # BORN
        samples = torch.arange(n_systems).repeat_interleave(atoms)
        return TensorBlock(values, samples)


MULTIPLICITY = torch.tensor([1, 2, 1, 4], dtype=torch.float16)


def weights_of(block):
    return MULTIPLICITY[torch.arange(block.values.shape[0]) % 4]


def std_over_samples(block):
    n = int(block.samples.max()) + 1
    w = weights_of(block).unsqueeze(1)
    values = block.values  # BORN
    count = torch.zeros(n, 1, dtype=values.dtype).index_add_(0, block.samples, w.to(values.dtype))
    mean = torch.zeros(n, values.shape[1], dtype=values.dtype)
    mean.index_add_(0, block.samples, w * values)
    mean = mean / count
    square = torch.zeros_like(mean)
    square.index_add_(0, block.samples, w * values ** 2)  # BORN
    return torch.sqrt(square / count - mean ** 2)  # BORN


def flat_features(std, floor):
    return (std.nan_to_num(0.0) < floor).float().mean()


block = SoapLikeCalculator(n_features=24, seed=5).compute(n_systems=40, atoms=16)
std = std_over_samples(block)
print("nan entries", int(torch.isnan(std).sum()), "of", std.numel())
print("median std %.2e (drawn 5.0e-05)" % float(std[~torch.isnan(std)].median()))
print("entries dropped as constant: %.0f%%" % (100 * flat_features(std, 2e-5)))
