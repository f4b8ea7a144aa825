"""
title: affinity loss looks its target up with class ids that torch.Tensor made float
expect: collision
thread: https://github.com/ccpem/affinity-vae/pull/222
fix_at:

Expectation, written first: the data set turns the class position into a tensor with the torch.Tensor constructor, which is always float32. The ids are
batched, paired by torch.combinations and used to index the affinity matrix, and float tensors cannot be indices. Either the ids are made long in the
data set or they are cast where the loss uses them.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class ProteinDataset(Dataset):
    def __init__(self, n, classes):
        rng = np.random.default_rng(5)
        self.classes = classes
        self.labels = [classes[i] for i in rng.integers(0, len(classes), n)]
        self.volumes = rng.normal(size=(n, 1, 8, 8)).astype(np.float32)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, item):
        voxels = torch.from_numpy(self.volumes[item])
        label = torch.Tensor([self.classes.index(self.labels[item])])  # BORN
        return voxels, label


class VAE(nn.Module):
    def __init__(self, latent_dims=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU())
        self.mu = nn.Linear(32, latent_dims)
        self.log_var = nn.Linear(32, latent_dims)
        self.decoder = nn.Linear(latent_dims, 64)

    def forward(self, x):
        h = self.encoder(x)
        mu, log_var = self.mu(h), self.log_var(h)
        z = mu + torch.exp(0.5 * log_var) * torch.randn_like(mu)
        return self.decoder(z).view_as(x), mu, log_var, z


class AffinityLoss:
    def __init__(self, lookup):
        self.lookup = lookup

    def __call__(self, y_true, y_pred):
        c = torch.combinations(y_true, r=2, with_replacement=False)
        affinity = self.lookup[c[:, 0], c[:, 1]]  # BORN COLLIDES
        z_id = torch.combinations(torch.arange(len(y_true)), r=2, with_replacement=False)
        cos = F.cosine_similarity(y_pred[z_id[:, 0]], y_pred[z_id[:, 1]])
        return torch.mean(torch.abs(cos - affinity))


class AVAELoss:
    def __init__(self, lookup, beta=0.1, gamma=1.0):
        self.affinity_loss = AffinityLoss(lookup)
        self.beta, self.gamma = beta, gamma

    def __call__(self, x, x_hat, mu, log_var, ids):
        recon = F.mse_loss(x_hat, x)
        kld = torch.mean(-0.5 * torch.sum(1 + log_var - mu**2 - log_var.exp(), dim=1))
        return recon + self.beta * kld + self.gamma * self.affinity_loss(ids, mu)


def train():
    torch.manual_seed(0)
    classes = ["1dkg", "1e0p", "2dfj", "3o59"]
    loader = DataLoader(ProteinDataset(24, classes), batch_size=8, shuffle=True)
    criterion = AVAELoss(torch.eye(len(classes)))
    vae = VAE()
    optimizer = torch.optim.Adam(vae.parameters(), lr=1e-3)
    for x, label in loader:
        x_hat, mu, log_var, _ = vae(x)
        loss = criterion(x, x_hat, mu, log_var, label.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", loss.item())


if __name__ == "__main__":
    train()
