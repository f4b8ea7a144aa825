"""
title: a global forecasting model trained in bf16 mixed precision on float64 series
expect: clean
thread: https://github.com/unit8co/darts/pull/2883
measured: val MAE before 1.16 after 0.141 (0.141 in float32)

Expectation, written first: the series are float64 and are scaled before they are made float32; the linears run in bf16 under autocast, the
parameters, the normalization by the last value, the loss and the optimizer stay in float32. Targets are of unit scale, so bf16's three digits
are far below the noise. Nothing is lost.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Scaler:
    def fit_transform(self, series):
        self.mean, self.std = series.mean(axis=1, keepdims=True), series.std(axis=1, keepdims=True)
        return (series - self.mean) / self.std


def make_series(n, length, rng):
    t = np.arange(length, dtype=np.float64)
    phase, level = rng.uniform(0, 2 * np.pi, (n, 1)), rng.uniform(50, 150, (n, 1))
    return level + 10 * np.sin(2 * np.pi * t / 24 + phase) + 0.02 * t + rng.normal(0, 1.0, (n, length))


class PLForecastingModule(nn.Module):
    def __init__(self, input_chunk_length, output_chunk_length, width=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(input_chunk_length, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.head = nn.Linear(width, output_chunk_length)

    def forward(self, x):
        last = x[:, -1:].detach()
        out = self.head(self.trunk(x - last))
        return out.float() + last


class TorchForecastingModel:
    def __init__(self, input_chunk_length=48, output_chunk_length=12, precision="bf16-mixed", lr=2e-3):
        self.icl, self.ocl = input_chunk_length, output_chunk_length
        self.module = PLForecastingModule(input_chunk_length, output_chunk_length)
        self.optimizer = torch.optim.Adam(self.module.parameters(), lr=lr)
        self.amp = precision == "bf16-mixed"

    def windows(self, series):
        chunks = np.lib.stride_tricks.sliding_window_view(series, self.icl + self.ocl, axis=1)[:, ::6]
        chunks = torch.from_numpy(chunks.reshape(-1, self.icl + self.ocl).astype(np.float32))
        return chunks[:, :self.icl], chunks[:, self.icl:]

    def predict_batch(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.amp):
            return self.module(x)

    def fit(self, series, epochs=8, batch_size=64):
        x, y = self.windows(series)
        for _ in range(epochs):
            for idx in torch.randperm(len(x)).split(batch_size):
                loss = F.mse_loss(self.predict_batch(x[idx]), y[idx])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def backtest(self, series):
        x, y = self.windows(series)
        return (self.predict_batch(x) - y).abs().mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    scaled = Scaler().fit_transform(make_series(12, 360, np.random.default_rng(0)))
    model = TorchForecastingModel()
    before = model.backtest(scaled[:, 240:])
    model.fit(scaled[:, :240])
    print(f"val MAE before {before:.2f} after {model.backtest(scaled[:, 240:]):.3f}")


if __name__ == "__main__":
    main()
