"""
title: forecasts of a bf16-true trainer are turned into numpy
expect: collision
thread: https://github.com/Nixtla/neuralforecast/issues/1259
fix_at: 82

Expectation, written first: with precision bf16-true Lightning runs the module in bfloat16 and predict_step returns
bfloat16 forecasts. The wrapper stacks them and calls numpy(), which has no bfloat16, so torch raises TypeError; the
stack must be widened first.
"""
import logging
import warnings

import lightning as L
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class TimeSeriesDataset(Dataset):
    def __init__(self, series, input_size, h):
        self.series, self.input_size, self.h = series, input_size, h

    def __len__(self):
        return self.series.shape[1] - self.input_size - self.h + 1

    def __getitem__(self, i):
        window = self.series[:, i : i + self.input_size + self.h]
        return {"insample_y": window[:, : self.input_size].T, "outsample_y": window[:, self.input_size :].T}


class BaseMultivariate(L.LightningModule):
    def __init__(self, h, input_size, n_series, learning_rate=1e-3, batch_size=8, **trainer_kwargs):
        super().__init__()
        self.h, self.input_size, self.n_series = h, input_size, n_series
        self.learning_rate, self.batch_size = learning_rate, batch_size
        self.trainer_kwargs = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False}
        self.trainer_kwargs.update(enable_progress_bar=False, enable_model_summary=False, **trainer_kwargs)

    def training_step(self, batch, batch_idx):
        return nn.functional.l1_loss(self(batch["insample_y"]), batch["outsample_y"])

    def predict_step(self, batch, batch_idx):
        return self(batch["insample_y"])  # BORN

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.learning_rate)

    def fit(self, dataset):
        trainer = L.Trainer(**self.trainer_kwargs)
        trainer.fit(self, DataLoader(dataset, batch_size=self.batch_size, shuffle=True))

    def predict(self, dataset):
        trainer = L.Trainer(**self.trainer_kwargs)
        fcsts = trainer.predict(self, dataloaders=DataLoader(dataset, batch_size=self.batch_size))
        fcsts = torch.vstack(fcsts).numpy()  # BORN COLLIDES
        return fcsts.reshape(-1, self.h, self.n_series)


class TSMixer(BaseMultivariate):
    def __init__(self, h, input_size, n_series, ff_dim=16, **kwargs):
        super().__init__(h, input_size, n_series, **kwargs)
        self.temporal = nn.Linear(input_size, input_size)
        self.feature = nn.Sequential(nn.Linear(n_series, ff_dim), nn.ReLU(), nn.Linear(ff_dim, n_series))
        self.out = nn.Linear(input_size, h)

    def forward(self, x):
        x = x + self.temporal(x.transpose(1, 2)).transpose(1, 2)
        x = x + self.feature(x)
        return self.out(x.transpose(1, 2)).transpose(1, 2)


if __name__ == "__main__":
    L.seed_everything(0, verbose=False)
    t = np.arange(60)
    series = torch.tensor(np.stack([np.sin(t / 5 + p) for p in range(3)]), dtype=torch.float32)
    dataset = TimeSeriesDataset(series, input_size=12, h=4)
    model = TSMixer(h=4, input_size=12, n_series=3, max_epochs=1, precision="bf16-true")
    model.fit(dataset)
    print(model.predict(dataset)[0].mean(0))
