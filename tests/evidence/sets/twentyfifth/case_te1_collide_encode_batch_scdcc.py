"""
title: Single-cell matrix scaled in NumPy goes as double into the encoder after pretraining
expect: collision
thread: https://github.com/ttgump/scDCC/issues/2
fix_at: (none beside the marked)

Expectation, written first: Pretraining builds its dataset with torch.Tensor(X) and so in float32. fit() calls
encodeBatch with torch.tensor(X), which keeps the float64 of the log-normalised matrix; the first linear layer of
the encoder gets Double input and raises.
"""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def normalize(counts, target=100.0):
    size_factors = counts.sum(1) / np.median(counts.sum(1))
    X = np.log1p(counts / counts.sum(1, keepdims=True) * target)  # BORN
    X = (X - X.mean(0)) / (X.std(0) + 1e-6)  # BORN
    return X, size_factors


def buildNetwork(layers):
    net = []
    for i in range(1, len(layers)):
        net += [nn.Linear(layers[i - 1], layers[i]), nn.ReLU()]
    return nn.Sequential(*net)


class scDCC(nn.Module):
    def __init__(self, input_dim, z_dim, n_clusters, encodeLayer, decodeLayer, sigma=1.0):
        super().__init__()
        self.sigma, self.n_clusters = sigma, n_clusters
        self.encoder = buildNetwork([input_dim] + encodeLayer)
        self.decoder = buildNetwork([z_dim] + decodeLayer)
        self._enc_mu = nn.Linear(encodeLayer[-1], z_dim)
        self._dec_mean = nn.Linear(decodeLayer[-1], input_dim)
        self.mu = nn.Parameter(torch.zeros(n_clusters, z_dim))

    def soft_assign(self, z):
        q = 1.0 / (1.0 + ((z.unsqueeze(1) - self.mu) ** 2).sum(2))
        return q / q.sum(1, keepdim=True)

    def forward(self, x):
        h = self.encoder(x + torch.randn_like(x) * float(self.sigma))  # COLLIDES
        z = self._enc_mu(h)
        mean = torch.exp(self._dec_mean(self.decoder(z)).clamp(max=8))
        return z, self.soft_assign(z), mean

    def encodeBatch(self, X, batch_size=32):
        encoded = [self.forward(inputs)[0].data for inputs in X.split(batch_size)]
        return torch.cat(encoded)

    def pretrain_autoencoder(self, X, X_raw, size_factor, epochs=2):
        dataset = TensorDataset(torch.Tensor(X), torch.Tensor(X_raw), torch.Tensor(size_factor))
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-3)
        for epoch in range(epochs):
            total = 0.0
            for x, raw, sf in DataLoader(dataset, batch_size=32, shuffle=True):
                _, _, mean = self.forward(x)
                rate = mean * sf[:, None]
                loss = (rate - raw * torch.log(rate + 1e-8)).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            print("Pretrain epoch", epoch + 1, "loss", round(total, 3))

    def fit(self, X, update_rounds=3):
        X = torch.tensor(X)  # BORN
        data = self.encodeBatch(X)  # BORN
        self.mu.data.copy_(data[torch.randperm(len(data))[: self.n_clusters]])
        for _ in range(update_rounds):
            y_pred = self.soft_assign(data).argmax(1)
            for k in range(self.n_clusters):
                if (y_pred == k).any():
                    self.mu.data[k] = data[y_pred == k].mean(0)
        return y_pred


if __name__ == "__main__":
    torch.manual_seed(2)
    counts = np.random.default_rng(2).poisson(2.0, size=(96, 30)) + 1
    X, sf = normalize(counts)
    model = scDCC(30, 4, 3, encodeLayer=[32, 16], decodeLayer=[16, 32])
    model.pretrain_autoencoder(X, counts, sf)
    y_pred = model.fit(X)
    print("cluster sizes", torch.bincount(y_pred, minlength=3).tolist())
