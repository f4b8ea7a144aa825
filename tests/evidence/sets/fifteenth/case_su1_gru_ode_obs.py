"""
title: sporadic observations come in one table of numbers and its patient column picks the hidden states
expect: collision
thread: https://github.com/edebrouwer/gru_ode_bayes/issues/7
fix_at: 36, 50, 79, 80

Expectation, written first: the table of observations is one float64 array, the collate function cuts its columns
and casts the values but not the row numbers; indexing the prediction with them is refused.
"""
import numpy as np
import torch
from torch import nn


class ClimateTable:
    """columns: patient, time, then a value and its mask for each series"""

    def __init__(self, patients, series, seed):
        rng = np.random.default_rng(seed)
        rows = []
        for patient in range(patients):
            for time in np.sort(rng.choice(20, 5, replace=False)):
                values = np.sin(0.3 * time + patient + np.arange(series))
                rows.append([patient, 0.1 * time, *values, *(rng.random(series) < 0.7)])
        self.rows = np.array(rows, dtype=np.float64)
        self.patients, self.series = patients, series


def collate(table):
    rows = table.rows[np.argsort(table.rows[:, 1], kind="stable")]
    times, starts = np.unique(rows[:, 1], return_index=True)
    d = table.series
    return {
        "times": times,
        "time_ptr": np.append(starts, len(rows)),
        "obs_idx": torch.from_numpy(rows[:, 0]),  # BORN
        "X": torch.from_numpy(rows[:, 2:2 + d]).float(),
        "M": torch.from_numpy(rows[:, 2 + d:]).float(),
        "patients": table.patients,
    }


class ObservationCell(nn.Module):
    def __init__(self, series, hidden):
        super().__init__()
        self.prepare = nn.Linear(3 * series, hidden)
        self.gru = nn.GRUCell(hidden, hidden)

    def forward(self, h, p, x_obs, m_obs, i_obs):
        mean, logvar = p[i_obs].chunk(2, -1)  # COLLIDES
        error = (x_obs - mean) / torch.exp(0.5 * logvar)
        loss = 0.5 * ((error.square() + logvar) * m_obs).sum()
        update = self.gru(torch.relu(self.prepare(torch.cat([x_obs, error, m_obs], -1))), h[i_obs])
        return h.index_copy(0, i_obs, update), loss


class FlowCell(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.gate, self.goal = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)

    def forward(self, h, dt):
        return h + dt * (1 - torch.sigmoid(self.gate(h))) * (torch.tanh(self.goal(h)) - h)


class NNFO(nn.Module):
    def __init__(self, series, hidden=16, step=0.05):
        super().__init__()
        self.hidden, self.step = hidden, step
        self.flow, self.observe = FlowCell(hidden), ObservationCell(series, hidden)
        self.p_model = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2 * series))

    def forward(self, batch):
        h, now, total = torch.zeros(batch["patients"], self.hidden), 0.0, 0.0
        for k, time in enumerate(batch["times"]):
            while now < time - 1e-9:
                h, now = self.flow(h, self.step), now + self.step
            a, b = batch["time_ptr"][k], batch["time_ptr"][k + 1]
            i_obs = batch["obs_idx"][a:b]
            h, loss = self.observe(h, self.p_model(h), batch["X"][a:b], batch["M"][a:b], i_obs)
            total = total + loss
        return total / batch["M"].sum()


if __name__ == "__main__":
    torch.manual_seed(0)
    batch, model = collate(ClimateTable(12, 3, seed=5)), NNFO(series=3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(8):
        loss = model(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
