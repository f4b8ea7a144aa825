"""
title: irregular time series: the collate function builds the observation index as a float tensor
expect: collision
thread: https://github.com/edebrouwer/gru_ode_bayes/issues/7
fix_at: 46, 67, 68

Expectation, written first: custom_collate_fn makes obs_idx with the torch.Tensor constructor, which is float32 whatever the integers it
is given. The model slices it per time step and the Bayesian observation cell indexes its hidden state with it: IndexError.
"""
import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class ODE_Dataset(Dataset):
    def __init__(self, panda_df):
        self.df = panda_df.assign(ID=panda_df["ID"].map({v: i for i, v in enumerate(panda_df["ID"].unique())}))
        self.df = self.df.set_index("ID").sort_index()
        self.length = self.df.index.nunique()
    def __len__(self):
        return self.length
    def __getitem__(self, idx):
        return {"idx": idx, "path": self.df.loc[[idx]].reset_index()}

def custom_collate_fn(batch):
    df = pd.concat([b["path"] for b in batch]).sort_values("Time", kind="stable")
    value_cols = [c.startswith("Value") for c in df.columns]
    mask_cols = [c.startswith("Mask") for c in df.columns]
    id_map = {b["idx"]: i for i, b in enumerate(batch)}
    times, counts = np.unique(df["Time"], return_counts=True)
    res = {}
    res["times"] = times
    res["time_ptr"] = np.concatenate([[0], np.cumsum(counts)])
    res["X"] = torch.tensor(df.iloc[:, value_cols].values, dtype=torch.float32)
    res["M"] = torch.tensor(df.iloc[:, mask_cols].values, dtype=torch.float32)
    res["obs_idx"] = torch.Tensor(df["ID"].map(id_map).values)  # BORN
    res["batch_size"] = len(batch)
    return res

class GRUObservationCell(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.gru_d = nn.GRUCell(input_size * 3, hidden_size)
    def forward(self, h, p, X_obs, M_obs, i_obs):
        p_obs = p[i_obs]  # COLLIDES
        mean, logvar = p_obs.chunk(2, dim=1)
        error = (X_obs - mean) / torch.exp(0.5 * logvar)
        losses = 0.5 * ((error.square() + logvar) * M_obs).sum()
        gru_input = torch.cat([X_obs, mean, error], dim=1) * M_obs.repeat(1, 3)
        return h.index_copy(0, i_obs, self.gru_d(gru_input, h[i_obs])), losses

class NNFOwithBayesianJumps(nn.Module):
    def __init__(self, input_size=2, hidden_size=8, delta_t=0.25):
        super().__init__()
        self.p_model = nn.Sequential(nn.Linear(hidden_size, 16), nn.ReLU(), nn.Linear(16, 2 * input_size))
        self.ode = nn.Sequential(nn.Linear(hidden_size, hidden_size), nn.Tanh())
        self.obs_cell = GRUObservationCell(input_size, hidden_size)
        self.hidden_size, self.delta_t = hidden_size, delta_t
    def forward(self, times, time_ptr, X, M, obs_idx, batch_size):
        h, current_time, loss = torch.zeros(batch_size, self.hidden_size), 0.0, 0.0
        for i, obs_time in enumerate(times):
            while current_time < obs_time:
                h = h + self.delta_t * (self.ode(h) - h)
                current_time += self.delta_t
            start, end = time_ptr[i], time_ptr[i + 1]
            i_obs = obs_idx[start:end]
            h, losses = self.obs_cell(h, self.p_model(h), X[start:end], M[start:end], i_obs)
            loss = loss + losses
        return loss / M.sum()

def make_climate_frame(n_stations=12, rng=np.random.default_rng(0)):
    rows = []
    for station in range(n_stations):
        for t in sorted(rng.choice(np.arange(1, 20), size=6, replace=False) * 0.5):
            rows.append((f"USC{station:04d}", t, *rng.normal(size=2), *rng.integers(0, 2, size=2)))
    return pd.DataFrame(rows, columns=["ID", "Time", "Value_0", "Value_1", "Mask_0", "Mask_1"])

if __name__ == "__main__":
    torch.manual_seed(0)
    loader = DataLoader(ODE_Dataset(make_climate_frame()), batch_size=4, collate_fn=custom_collate_fn)
    model = NNFOwithBayesianJumps()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        for b in loader:
            loss = model(**b)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")
