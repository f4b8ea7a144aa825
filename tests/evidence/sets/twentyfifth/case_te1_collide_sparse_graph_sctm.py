"""
title: Normalised spatial graph from SciPy-style arrays propagates float32 counts
expect: collision
thread: https://github.com/JinmiaoChenLab/scTM/issues/5
fix_at: (none beside the marked)

Expectation, written first: The symmetric normalisation of the neighbour graph is done in NumPy float64 and the
values go into a sparse tensor as they are. The counts are float32, so torch.sparse.mm of the double graph and the
float features raises in the first propagation.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def spatial_neighbors(coords, k):
    d = ((coords[:, None] - coords[None]) ** 2).sum(-1)
    nearest = np.argsort(d, axis=1)[:, : k + 1]
    rows = np.repeat(np.arange(len(coords)), k + 1)
    return rows, nearest.reshape(-1)


def sgc_precompute_adj(rows, cols, n):
    values = np.ones(len(rows))  # BORN
    deg = np.bincount(rows, weights=values, minlength=n)
    deg_col = np.bincount(cols, weights=values, minlength=n)
    values = values / np.sqrt(deg[rows] * np.maximum(deg_col[cols], 1))  # BORN
    index = torch.from_numpy(np.stack([rows, cols]))
    return torch.sparse_coo_tensor(index, torch.from_numpy(values), (n, n)).coalesce()  # BORN


def precompute_SGC(x, adj, n_layers):
    features = [x]
    for _ in range(n_layers):
        features.append(torch.sparse.mm(adj, features[-1]))  # COLLIDES
    return torch.cat(features, dim=1)


class Encoder(nn.Module):
    def __init__(self, n_genes, hidden, n_topics):
        super().__init__()
        self.norm = nn.BatchNorm1d(n_genes)
        self.linear = nn.Linear(n_genes, hidden)
        self.mu, self.logvar = nn.Linear(hidden, n_topics), nn.Linear(hidden, n_topics)

    def forward(self, x):
        h = F.relu(self.linear(self.norm(torch.log1p(x))))
        return self.mu(h), self.logvar(h)


class STAMP(nn.Module):
    def __init__(self, coords, counts, n_topics=4, n_layers=1, k=4):
        super().__init__()
        rows, cols = spatial_neighbors(coords, k)
        adj = sgc_precompute_adj(rows, cols, len(coords))  # BORN
        self.counts = torch.from_numpy(counts.astype(np.float32))
        self.features = precompute_SGC(self.counts, adj, n_layers)
        self.encoder = Encoder(self.features.shape[1], 16, n_topics)
        self.beta = nn.Parameter(torch.randn(n_topics, counts.shape[1]) * 0.1)

    def elbo(self, idx):
        mu, logvar = self.encoder(self.features[idx])
        theta = (mu + torch.randn_like(mu) * (0.5 * logvar).exp()).softmax(-1)
        log_p = torch.log(theta @ self.beta.softmax(-1) + 1e-8)
        rec = -(self.counts[idx] * log_p).sum(-1)
        kl = -0.5 * (1 + logvar - mu ** 2 - logvar.exp()).sum(-1)
        return (rec + kl).mean()

    def fit(self, epochs=3, batch_size=32, lr=0.01):
        optim = torch.optim.Adam(self.parameters(), lr=lr)
        for epoch in range(epochs):
            perm, total = torch.randperm(len(self.counts)), 0.0
            for idx in perm.split(batch_size):
                loss = self.elbo(idx)
                optim.zero_grad()
                loss.backward()
                optim.step()
                total += loss.item() * len(idx)
            print(f"Epoch {epoch} Loss: {total / len(perm):.2f}")


if __name__ == "__main__":
    torch.manual_seed(5)
    rng = np.random.default_rng(5)
    STAMP(rng.random((64, 2)), rng.poisson(1.5, size=(64, 20))).fit()
