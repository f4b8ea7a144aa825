"""
title: cis-QTL mapping with genotypes held as int8 dosages
expect: clean
thread: https://github.com/broadinstitute/tensorqtl/issues/22
measured: found 6 of 6; r 0.4345 0.4745 0.3864 0.4225 0.4782 0.5241, min t 8.33 (the same in int64 and float64)

Expectation, written first: dosages are 0, 1, 2 and -1 for a missing call, so int8 holds them exactly. They are converted to float32 before the
imputation, the residualization and the correlation; counts of alleles are sums of int8, which torch takes in int64. Index tensors are int64.
No value leaves its range.
"""
import numpy as np
import torch


def simulate(num_samples, num_variants, num_genes, rng):
    maf = rng.uniform(0.1, 0.5, size=(num_variants, 1))
    genotypes = rng.binomial(2, maf, size=(num_variants, num_samples)).astype(np.int8)
    causal = rng.choice(num_variants, num_genes, replace=False)
    expression = 0.9 * genotypes[causal] + rng.normal(size=(num_genes, num_samples))
    genotypes[rng.random(genotypes.shape) < 0.02] = -1
    covariates = rng.normal(size=(num_samples, 3))
    return genotypes, expression + covariates @ np.ones(3), covariates, causal


def impute_mean(genotypes_t, missing=-1):
    mask = genotypes_t == missing
    genotypes_t = genotypes_t.float()
    total = torch.where(mask, 0.0, genotypes_t).sum(1, keepdim=True)
    mean = total / (~mask).sum(1, keepdim=True)
    return torch.where(mask, mean, genotypes_t)


def calculate_maf(genotypes_t, missing=-1):
    called = genotypes_t != missing
    alleles = torch.where(called, genotypes_t, 0).sum(1)
    af = alleles / (2 * called.sum(1))
    return torch.minimum(af, 1 - af)


class Residualizer:
    def __init__(self, covariates_t):
        centered = covariates_t - covariates_t.mean(0)
        self.Q_t, _ = torch.linalg.qr(centered)
        self.dof = covariates_t.shape[0] - 2 - covariates_t.shape[1]

    def transform(self, M_t):
        M0_t = M_t - M_t.mean(1, keepdim=True)
        return M0_t - (M0_t @ self.Q_t) @ self.Q_t.t()


def calculate_corr(genotypes_t, phenotype_t, residualizer):
    g = residualizer.transform(genotypes_t)
    p = residualizer.transform(phenotype_t)
    g = g / g.norm(dim=1, keepdim=True)
    p = p / p.norm(dim=1, keepdim=True)
    return g @ p.t()


def map_cis(genotypes, expression, covariates, genotype_ix, maf_threshold=0.05):
    genotype_ix_t = torch.from_numpy(genotype_ix).long()
    genotypes_t = torch.from_numpy(genotypes)[:, genotype_ix_t]
    keep = torch.nonzero(calculate_maf(genotypes_t) >= maf_threshold).squeeze(1)
    genotypes_t = impute_mean(genotypes_t[keep])
    residualizer = Residualizer(torch.tensor(covariates, dtype=torch.float32))
    r_t = calculate_corr(genotypes_t, torch.tensor(expression, dtype=torch.float32), residualizer)
    best = r_t.abs().argmax(dim=0)
    r = r_t[best, torch.arange(r_t.shape[1])].double()
    tstat = r * torch.sqrt(residualizer.dof / (1 - r ** 2))
    return keep[best], r, tstat


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    genotypes, expression, covariates, causal = simulate(400, 300, 6, rng)
    order = np.arange(400, dtype=np.int32)
    variants, r, tstat = map_cis(genotypes, expression, covariates, order)
    print("found", int((variants.numpy() == causal).sum()), "of", len(causal))
    print("r", [round(v, 4) for v in r.tolist()], "min t", round(tstat.abs().min().item(), 2))
