"""
title: normalised counts of single cells are float64 and take the condition embedding along with them
expect: collision
thread: https://github.com/theislab/scarches/issues/195
fix_at: 50

Expectation, written first: dividing integer counts by library sizes makes float64; cat with
the float32 embedding of the condition promotes, and the encoder's Linear refuses.
"""
import numpy as np
import torch
from torch import nn


class AnnotatedCounts:
    def __init__(self, cells=128, genes=40, seed=0):
        rng = np.random.default_rng(seed)
        self.X = rng.poisson(2.0, size=(cells, genes))
        self.condition = rng.integers(0, 3, size=cells)

    def normalised(self, target=1e4):
        size = self.X.sum(1, keepdims=True)
        return np.log1p(self.X / size * target)  # BORN


class ConditionalVAE(nn.Module):
    def __init__(self, genes, conditions=3, cond_dim=4, latent=6):
        super().__init__()
        self.cond = nn.Embedding(conditions, cond_dim)
        self.enc = nn.Linear(genes + cond_dim, 2 * latent)
        self.dec = nn.Linear(latent + cond_dim, genes)

    def forward(self, x, c):
        e = self.cond(c)
        mu, logvar = self.enc(torch.cat([x, e], -1)).chunk(2, -1)  # COLLIDES
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        recon = self.dec(torch.cat([z, e], -1))
        kl = -0.5 * (1 + logvar - mu ** 2 - logvar.exp()).sum(-1)
        return (recon - x).pow(2).sum(-1) + kl


def train(data, epochs=3):
    torch.manual_seed(0)
    X = torch.from_numpy(data.normalised())  # BORN
    c = torch.from_numpy(data.condition)
    model = ConditionalVAE(X.shape[1])
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(X)).split(32):
            loss = model(X[rows], c[rows]).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    return loss.item()


print(f"elbo loss {train(AnnotatedCounts()):.2f}")
