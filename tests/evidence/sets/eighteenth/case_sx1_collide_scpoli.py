"""
title: float64 expression matrix of the AnnData reaches the float32 encoder
expect: collision
thread: https://github.com/theislab/scarches/issues/195
fix_at: 67

Expectation, written first: the user's normalisation leaves adata.X in float64 and the dataset turns it into tensors
without a dtype. The encoder's first Linear has float32 weights and refuses the double input. The matrix or the
dataset's tensor must be float32.
"""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class AnnData:
    def __init__(self, X, obs):
        self.X, self.obs = X, obs


def normalize_total(adata, target_sum=1e4):
    counts = adata.X.sum(1, keepdims=True)
    adata.X = np.log1p(adata.X / counts * target_sum)  # BORN


class MultiConditionAnnotatedDataset(Dataset):
    def __init__(self, adata, condition_key, condition_encoder):
        self.data = torch.tensor(adata.X)  # BORN
        self.conditions = torch.tensor([condition_encoder[c] for c in adata.obs[condition_key]], dtype=torch.long)
        self.size_factors = self.data.sum(1)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return {
            "x": self.data[index],  # BORN
            "batch": self.conditions[index],
            "sizefactor": self.size_factors[index],
        }


class Encoder(nn.Module):
    def __init__(self, layer_sizes, latent_dim, cond_dim):
        super().__init__()
        self.L0 = nn.Linear(layer_sizes[0], layer_sizes[1])
        self.cond_L = nn.Linear(cond_dim, layer_sizes[1], bias=False)
        self.mean_encoder = nn.Linear(layer_sizes[1], latent_dim)
        self.log_var_encoder = nn.Linear(layer_sizes[1], latent_dim)

    def forward(self, x, batch):
        hidden = self.L0(x)  # COLLIDES
        hidden = torch.relu(hidden + self.cond_L(batch))
        return self.mean_encoder(hidden), self.log_var_encoder(hidden)


class scPoli(nn.Module):
    def __init__(self, n_genes, n_conditions, hidden=32, latent_dim=8, embedding_dim=4):
        super().__init__()
        self.embedding = nn.Embedding(n_conditions, embedding_dim, max_norm=1.0)
        self.encoder = Encoder([n_genes, hidden], latent_dim, embedding_dim)
        self.decoder = nn.Sequential(nn.Linear(latent_dim + embedding_dim, hidden), nn.ReLU(), nn.Linear(hidden, n_genes))

    def forward(self, x, batch, sizefactor):
        cond = self.embedding(batch)
        z_mean, z_log_var = self.encoder(x, cond)
        z = z_mean + torch.randn_like(z_mean) * (0.5 * z_log_var).exp()
        recon = self.decoder(torch.cat([z, cond], 1))
        kl = -0.5 * (1 + z_log_var - z_mean.pow(2) - z_log_var.exp()).sum(1).mean()
        return nn.functional.mse_loss(recon, x), kl


def train(model, dataset, n_epochs, lr=1e-3, alpha_kl=0.5):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for epoch in range(n_epochs):
        for batch in DataLoader(dataset, batch_size=16, shuffle=True):
            recon_loss, kl_loss = model(**batch)
            optimizer.zero_grad()
            (recon_loss + alpha_kl * kl_loss).backward()
            optimizer.step()
        print(epoch, recon_loss.item())


if __name__ == "__main__":
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    adata = AnnData(rng.poisson(2.0, (64, 40)), {"study": rng.choice(["smartseq", "celseq"], 64)})
    normalize_total(adata)
    train(scPoli(40, 2), MultiConditionAnnotatedDataset(adata, "study", {"smartseq": 0, "celseq": 1}), n_epochs=3)
