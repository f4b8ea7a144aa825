"""
title: Reconstruction features of double windows reach the estimation network
expect: collision
thread: https://github.com/KDD-OpenSource/DeepADoTS/issues/95
fix_at: (none beside the marked)

Expectation, written first: the windows are NumPy doubles. The LSTM autoencoder casts its own copy to float32, but
the two distances are taken between the double input and the reconstruction and are double. torch.cat
promotes the joint vector, and the float32 estimation network refuses it.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader


class LSTMAutoEncoder(nn.Module):
    def __init__(self, n_features, hidden_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.encoder = nn.LSTM(n_features, hidden_size, batch_first=True)
        self.decoder = nn.LSTM(n_features, hidden_size, batch_first=True)
        self.hidden2output = nn.Linear(hidden_size, n_features)

    def forward(self, ts_batch):
        ts_batch = ts_batch.float()
        _, enc_hidden = self.encoder(ts_batch)
        dec_hidden, output = enc_hidden, []
        for i in reversed(range(ts_batch.shape[1])):
            step = self.hidden2output(dec_hidden[0][0])
            output.append(step)
            _, dec_hidden = self.decoder(step.unsqueeze(1), dec_hidden)
        return torch.stack(output[::-1], dim=1), enc_hidden[0][0]


class DAGMMModule(nn.Module):
    def __init__(self, autoencoder, n_gmm):
        super().__init__()
        self.autoencoder = autoencoder
        self.estimation = nn.Sequential(nn.Linear(autoencoder.hidden_size + 2, 10), nn.Tanh(),
                                        nn.Linear(10, n_gmm), nn.Softmax(dim=1))

    def relative_euclidean_distance(self, a, b):
        return (a - b).norm(2, dim=1) / torch.clamp(a.norm(2, dim=1), min=1e-10)  # BORN

    def forward(self, x):
        dec, enc = self.autoencoder(x)
        flat_x, flat_dec = x.flatten(1), dec.flatten(1)
        rec_cosine = F.cosine_similarity(flat_x, flat_dec, dim=1)  # BORN
        rec_euclidean = self.relative_euclidean_distance(flat_x, flat_dec)  # BORN
        z = torch.cat([enc, rec_euclidean.unsqueeze(-1), rec_cosine.unsqueeze(-1)], dim=1)  # BORN
        gamma = self.estimation(z)  # COLLIDES
        return enc, dec, z, gamma


class DAGMM:
    def __init__(self, n_features, sequence_length=8, hidden_size=4, n_gmm=2, lambda_energy=0.1):
        self.dagmm = DAGMMModule(LSTMAutoEncoder(n_features, hidden_size), n_gmm)
        self.sequence_length, self.lambda_energy = sequence_length, lambda_energy
        self.optimizer = torch.optim.Adam(self.dagmm.parameters(), lr=1e-3)

    def compute_energy(self, z, gamma):
        phi = gamma.mean(dim=0)
        mu = (gamma.unsqueeze(-1) * z.unsqueeze(1)).sum(dim=0) / gamma.sum(dim=0).unsqueeze(-1)
        var = (gamma.unsqueeze(-1) * (z.unsqueeze(1) - mu) ** 2).sum(dim=0) / gamma.sum(dim=0).unsqueeze(-1) + 1e-3
        logp = -0.5 * (((z.unsqueeze(1) - mu) ** 2) / var + var.log()).sum(dim=-1) + phi.log()
        return -torch.logsumexp(logp, dim=1).mean()

    def dagmm_step(self, input_data):
        enc, dec, z, gamma = self.dagmm(input_data)
        loss = ((input_data - dec) ** 2).mean() + self.lambda_energy * self.compute_energy(z, gamma)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, X, num_epochs=2):
        sequences = [X[i:i + self.sequence_length] for i in range(len(X) - self.sequence_length + 1)]
        loader = DataLoader(sequences, batch_size=32, drop_last=True)  # BORN
        for epoch in range(num_epochs):
            losses = [self.dagmm_step(input_data) for input_data in loader]  # BORN
            print("epoch", epoch, "loss", round(float(np.mean(losses)), 4))


if __name__ == "__main__":
    torch.manual_seed(95)
    rng = np.random.default_rng(95)
    data = np.sin(np.arange(110)[:, None] * np.array([0.2, 0.31])) + 0.1 * rng.normal(size=(110, 2))  # BORN
    DAGMM(n_features=2).fit(data)
