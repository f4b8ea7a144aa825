"""
title: sporadic observations of many series are walked through in time by one recurrent cell
expect: collision
thread: https://github.com/edebrouwer/gru_ode_bayes/issues/7
fix_at: 35, 39, 48, 60, 80, 81

Expectation, written first: the collate function numbers the series in a numpy array of zeros, so the numbers are
float64; later a slice of them indexes the hidden states, and only integers may do that.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class SporadicDataset:
    def __init__(self, series, features, seed):
        rng = np.random.default_rng(seed)
        self.rows = []
        for k in range(series):
            times = np.sort(rng.uniform(0, 4, rng.integers(4, 8)))
            phase = rng.uniform(0, 3)
            values = np.stack([np.sin(times + phase + j) for j in range(features)], 1)
            self.rows.append((times, values.astype(np.float32)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def custom_collate_fn(batch):
    total = sum(len(times) for times, _ in batch)
    stamps, obs_idx = np.zeros(total), np.zeros(total)  # BORN
    at = 0
    for k, (times, _) in enumerate(batch):
        stamps[at : at + len(times)] = times
        obs_idx[at : at + len(times)] = k
        at += len(times)
    order = np.argsort(stamps, kind="stable")
    X = np.concatenate([values for _, values in batch])[order]
    times, counts = np.unique(np.round(stamps[order], 1), return_counts=True)
    return {
        "times": times,
        "time_ptr": np.concatenate([[0], counts.cumsum()]),
        "X": torch.from_numpy(X),
        "obs_idx": torch.tensor(obs_idx[order]),  # BORN
        "series": len(batch),
    }


class GRUObservationCell(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.p_model = nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, features))
        self.gru = nn.GRUCell(2 * features, hidden)

    def forward(self, h, p, X_obs, i_obs):
        p_obs = p[i_obs]  # COLLIDES
        error = X_obs - p_obs
        updated = self.gru(torch.cat([X_obs, error], 1), h[i_obs])
        return h.index_copy(0, i_obs, updated), error.square().sum()


class NNFOwithBayesianJumps(nn.Module):
    def __init__(self, features=2, hidden=12):
        super().__init__()
        self.hidden = hidden
        self.ode = nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, hidden))
        self.cell = GRUObservationCell(features, hidden)

    def forward(self, batch, delta_t=0.1):
        h = torch.zeros(batch["series"], self.hidden)
        now, loss = 0.0, 0.0
        for i, time in enumerate(batch["times"]):
            while now < time - delta_t / 2:
                h, now = h + delta_t * self.ode(h), now + delta_t
            start, end = batch["time_ptr"][i], batch["time_ptr"][i + 1]
            i_obs = batch["obs_idx"][start:end]
            h, part = self.cell(h, self.cell.p_model(h), batch["X"][start:end], i_obs)
            loss = loss + part
        return loss / len(batch["X"])


def main():
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(SporadicDataset(12, 2, seed=3), 6, collate_fn=custom_collate_fn)
    model = NNFOwithBayesianJumps()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(3):
        for batch in loader:
            loss = model(batch)
            opt.zero_grad()
            loss.backward()
            opt.step()
    print(f"loss {loss.item():.3f}")


main()
